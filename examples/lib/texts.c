// texts.c: the text that a program is given (see texts.h).
#define _POSIX_C_SOURCE 200809L
#include "texts.h"

void text_check(const char *option, const char *file_option, const char *text) {
    struct stat status;
    const bool at = text[0] == '@' && !access(text + 1, R_OK);
    if (!strcmp(text, "-") || at || (!stat(text, &status) && S_ISREG(status.st_mode)))
        args_fail(2, "%s: '%s' would be taken as text: %s %s reads %s", option, text, file_option, text + at,
                  strcmp(text, "-") ? "the file" : "standard input");
}

char *text_read(const char *option, const char *path, size_t *size) {
    struct stat status;
    if (!stat(path, &status) && S_ISCHR(status.st_mode))  // some have no end
        args_fail(1, "%s: %s: is a device: give a file, or - for standard input", option, path);
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    char *text = NULL, part[4096];
    FILE *whole = file ? open_memstream(&text, size) : NULL;
    size_t n = 0;
    if (!file) args_fail(1, "%s: %s: cannot open: %s", option, path, strerror(errno));
    if (!whole) args_fail(1, "%s: %s: out of memory", option, path);
    while ((n = fread(part, 1, sizeof part, file)) > 0) fwrite(part, 1, n, whole);
    if (ferror(file)) args_fail(1, "%s: %s: cannot read: %s", option, path, strerror(errno));
    if (file != stdin) fclose(file);
    if (fclose(whole)) args_fail(1, "%s: %s: out of memory", option, path);
    if (!*size) args_fail(2, "%s: %s: the file is empty", option, path);
    return text;
}

llm42_result text_ids(tok *t, const char *text, size_t size, int32_t **ids, bool *twice, llm42_error *error) {
    const llm42_result result = tok_encode(t, text, size, true, ids, error);
    const bool begins = !result && arrlen(*ids) > 1 && t->bos >= 0 && (*ids)[0] == t->bos && (*ids)[1] == t->bos;
    if (begins) arrdel(*ids, 0);
    if (twice) *twice = begins;
    return result;
}

void text_manifest(args_manifest *manifest) {
    char versions[128];
    const size_t room = sizeof manifest->text - manifest->size;
    const int size = snprintf(manifest->text + manifest->size, room, "text into ids: %s\n", tok_versions(versions));
    if ((size_t)size < room) manifest->size += (size_t)size;
    else manifest->text[manifest->size] = 0;
}

void text_encode(tok *t, const char *text, size_t size, int32_t **ids) {
    llm42_error error = {0};
    bool twice = false;
    args_check(text_ids(t, text, size, ids, &twice, &error), &error);
    if (twice) fprintf(stderr, "%s: the text begins with the begin-of-text token, so none is added\n", args_program);
}
