// texts.h: the text that a program is given, by an option or in a file. What looks like the wrong one of the two is
// refused, so that nobody takes a result of a file's name for one of the file.
#ifndef TEXTS_H
#define TEXTS_H

#include "examples/lib/args.h"
#include "examples/util/tokenizer.h"
// Exits unless `text`, of option `option`, is meant as text. `file_option` is the one that reads files.
void text_check(const char *option, const char *file_option, const char *text);
// The whole file, or standard input if the path is -, to be freed. Exits if it cannot be read or is empty.
char *text_read(const char *option, const char *path, size_t *size);
// The ids of a text behind one begin-of-text token. A text that begins with this token itself gets no second one;
// *twice, unless NULL, says so.
llm42_result text_ids(tok *t, const char *text, size_t size, int32_t **ids, bool *twice, llm42_error *error);
// Names PCRE2 and its version of Unicode, on which the ids of rare characters depend, for transcripts.
void text_manifest(args_manifest *manifest);
// The same as text_ids, with a remark; exits if it fails.
void text_encode(tok *t, const char *text, size_t size, int32_t **ids);

#endif  // TEXTS_H
