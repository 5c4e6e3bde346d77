// chat_unknown.c: what a chat template that is not known has in common with the formats that are, and what it has of
// its own. This is only for an error message: texts are compared with texts, and the program in the template is not
// read.
#define _POSIX_C_SOURCE 200809L
#include "chat.h"

#include <ctype.h>

typedef char *chat_pieces;  // an stb_ds array of texts that each end in a 0

// Adds a line if it can be a mark of a turn, or words: a name such as 'role' says nothing.
static void chat_piece(chat_pieces *all, const char *line, size_t size) {
    while (size && strchr(" \t\r", line[0])) line++, size--;
    while (size && strchr(" \t\r", line[size - 1])) size--;
    bool name = true;
    for (size_t i = 0; i < size; i++) name &= line[i] == '_' || line[i] == '-' || isalnum((unsigned char)line[i]);
    if (name || size > 200) return;
    memcpy(arraddnptr(*all, size), line, size);
    arrput(*all, 0);
}

// The lines of a text, or of a string with its escapes \n, \t and \".
static void chat_lines(chat_pieces *all, const char *text, size_t size, bool string) {
    char *line = NULL;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (string && c == '\\' && i + 1 < size) c = text[++i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
        if (c != '\n') arrput(line, c);
        else chat_piece(all, line, arrlenu(line)), arrsetlen(line, 0);
    }
    chat_piece(all, line, arrlenu(line));
    arrfree(line);
}

// What a template writes: the text outside of its tags, and the strings in them, but for messages of errors.
static chat_pieces chat_written(const char *at) {
    chat_pieces all = NULL;
    while (*at) {
        const char *tag = at;
        while (*tag && !(tag[0] == '{' && strchr("{%#", tag[1]) && tag[1])) tag++;
        chat_lines(&all, at, (size_t)(tag - at), false);
        if (!*tag) break;
        const char close[] = {tag[1] == '{' ? '}' : tag[1], '}', 0};
        const char *error = NULL;
        for (at = tag + 2; *at && strncmp(at, close, 2); at++) {
            const char quote = *at, *begin = at + 1;
            if (!strncmp(at, "raise_exception", 15)) error = at;
            if (tag[1] == '#' || (quote != '\'' && quote != '"')) continue;
            for (at++; *at && *at != quote; at++) at += *at == '\\' && at[1];
            if (!error && tag[1] != '#') chat_lines(&all, begin, (size_t)(at - begin), true);
            if (!*at) break;
        }
        at += *at ? 2 : 0;
    }
    return all;
}

static bool chat_has_piece(const chat_format *f, const char *piece) {
    const char *const all[] = {f->alone, f->system, f->then, f->reply, f->next, f->answer, f->date};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && strstr(all[i], piece)) return true;
    return false;
}

void chat_unknown(const char *template, char *text, size_t size) {
    int count = 0, best = 0;
    const chat_format *f = chat_formats(&count), *nearest = NULL;
    chat_pieces all = chat_written(template);
    const char *end = all + arrlen(all), *own = NULL;
    for (int i = 0; i < count; i++) {
        int found = 0;
        for (const char *at = all; at != end; at += strlen(at) + 1) found += chat_has_piece(&f[i], at);
        if (found > best) best = found, nearest = &f[i];
    }
    for (const char *at = all; at != end && !own; at += strlen(at) + 1)
        if (!nearest || !chat_has_piece(nearest, at)) own = at;
    if (!nearest) snprintf(text, size, "none of its marks is that of a known format; it has '%.80s'", own ? own : "");
    else if (own) snprintf(text, size, "it is nearest to %s, which has no '%.80s'", nearest->name, own);
    else snprintf(text, size, "its marks are those of %s, but it may put them together in another way", nearest->name);
    arrfree(all);
}
