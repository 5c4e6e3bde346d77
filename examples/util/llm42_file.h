// llm42_file.h: a file that a program writes gets its name when it is whole. Until then its text is in a part beside
// it, NAME.PID.part, so a run that fails, or that somebody ends, leaves an older file of that name as it was.
//
//     FILE *file = llm42_file_create("result.tsv");     // NULL, and errno, if it cannot be written
//     llm42_file_keep(file, "# unfinished\n");          // only if a part of the file is of use, too
//     if (!llm42_file_finish(file)) ...                 // false, and errno, if anything could not be written
//
// llm42_files_end, at the end of a program, removes the parts of files that were not finished. A file that was kept
// becomes NAME.unfinished instead, and ends in the line that llm42_file_keep was given last. What an earlier run has
// left there stays: the file is then NAME.unfinished.2, or the next number that is free.
//
// Devices and pipes, /dev/null say, are written as they are, since moving a file there would replace them. A symbolic
// link stays a link: the file that it leads to is replaced. This header needs _POSIX_C_SOURCE 200809L, and with a glibc
// before 2.34 -pthread.
//
// Threads may write files of their own at once. A child of fork() has no part in the files of its parent: what it
// writes there is lost, and only the parent finishes and removes them.
#ifndef LLM42_FILE_H
#define LLM42_FILE_H

#include <errno.h>
#include <fcntl.h>
#ifndef __wasi__  // where there are neither threads nor fork
#include <pthread.h>
#endif
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LLM42_FILE_PATH = 4096 };

typedef struct llm42_file {
    struct llm42_file *next;
    FILE *file;
    bool replaces;   // NAME.unfinished of an earlier run, which it holds all of
    bool left;       // it ends as NAME.unfinished
    char tail[192];  // the line at the end of a file that was kept; empty: it was not
    char path[LLM42_FILE_PATH], part[LLM42_FILE_PATH + 32];  // both the same: it is written as it is
} llm42_file;

// The files that are being written: one list for all files of a program that include this header.
__attribute__((weak)) llm42_file *llm42_files;

// Threads take turns at the list.
#ifdef __wasi__
static inline void llm42_files_take(void) {}
static inline void llm42_files_give(void) {}
static inline void llm42_files_watch_forks(void) {}
#else
__attribute__((weak)) pthread_mutex_t llm42_files_lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((weak)) pthread_once_t llm42_files_watched = PTHREAD_ONCE_INIT;

static inline void llm42_files_take(void) { pthread_mutex_lock(&llm42_files_lock); }
static inline void llm42_files_give(void) { pthread_mutex_unlock(&llm42_files_lock); }

// In the child of a fork. Both processes have a copy of what has not reached a file yet, and would write it when they
// end. So the child's copy goes nowhere, and with two names that are the same a file is neither moved nor removed.
static inline void llm42_files_forked(void) {
    const int nowhere = open("/dev/null", O_WRONLY);
    for (llm42_file *f = llm42_files; f; f = f->next) {
        if (f->file && nowhere >= 0) dup2(nowhere, fileno(f->file));
        memcpy(f->part, f->path, strlen(f->path) + 1);
    }
    if (nowhere >= 0) close(nowhere);
    llm42_files_give();
}

static inline void llm42_files_watch(void) { pthread_atfork(llm42_files_take, llm42_files_give, llm42_files_forked); }
static inline void llm42_files_watch_forks(void) { pthread_once(&llm42_files_watched, llm42_files_watch); }
#endif

// The path that a path leads to if its last name is a symbolic link, whether or not there is a file. False: it is too
// long, or links go round in a circle.
static inline bool llm42_file_follow(const char *path, char to[LLM42_FILE_PATH]) {
    char link[LLM42_FILE_PATH];
    struct stat there;
    if (strlen(path) >= LLM42_FILE_PATH) return errno = ENAMETOOLONG, false;
    memcpy(to, path, strlen(path) + 1);
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) return true;  // /dev/stdout leads to no path
    for (int links = 0; links < 40; links++) {
        const ssize_t size = readlink(to, link, sizeof link - 1);
        if (size < 0) return true;
        link[size] = 0;
        const char *slash = strrchr(to, '/');
        const size_t folder = link[0] == '/' || !slash ? 0 : (size_t)(slash - to) + 1;
        if (folder + (size_t)size >= LLM42_FILE_PATH) return errno = ENAMETOOLONG, false;
        memcpy(to + folder, link, (size_t)size + 1);
    }
    return errno = ELOOP, false;
}

// Says what to write. False, and errno: a folder, or a file that must not be written, which is not replaced either.
static inline bool llm42_file_name(llm42_file *f, const char *path) {
    struct stat there;
    if (!llm42_file_follow(path, f->path)) return false;
    const bool exists = stat(f->path, &there) == 0;
    if (exists && S_ISDIR(there.st_mode)) return errno = EISDIR, false;
    if (exists && access(f->path, W_OK)) return false;
    if (exists && !S_ISREG(there.st_mode)) snprintf(f->part, sizeof f->part, "%s", f->path);
    else snprintf(f->part, sizeof f->part, "%s.%ld.part", f->path, (long)getpid());
    return true;
}

// A signal may come at any moment, so a file is in the list before it is opened and until it has its name.
// False: a file of this name is being written, and two writers would share one part.
static inline bool llm42_file_list(llm42_file *file) {
    bool listed = false;
    llm42_files_watch_forks();
    llm42_files_take();
    for (const llm42_file *f = llm42_files; f; f = f->next)
        listed |= !strcmp(f->part, file->part) && strcmp(f->part, f->path);
    file->next = llm42_files;
    if (!listed) llm42_files = file;
    llm42_files_give();
    return !listed;
}

static inline void llm42_file_forget(llm42_file *f) {
    llm42_files_take();
    llm42_file **at = &llm42_files;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    llm42_files_give();
    free(f);
}

static inline void llm42_file_set(llm42_file *f, FILE *file) {
    llm42_files_take();
    f->file = file;
    llm42_files_give();
}

static inline FILE *llm42_file_create(const char *path) {
    llm42_file *f = calloc(1, sizeof *f);
    int why = errno;
    const bool named = f && llm42_file_name(f, path);
    if (named && llm42_file_list(f)) {
        FILE *file = fopen(f->part, "w");
        why = errno;
        llm42_file_set(f, file);
        if (file) return file;
        llm42_file_forget(f);
    } else if (f) {
        why = named ? EBUSY : errno;
        free(f);
    }
    errno = why;
    return NULL;
}

static inline llm42_file *llm42_file_find(const FILE *file) {
    llm42_files_take();
    llm42_file *f = llm42_files;
    while (f && f->file != file) f = f->next;
    llm42_files_give();
    return f;
}

// From now on what is written is of use by itself. `tail` is a whole line, of less than 192 characters, that says that
// more was to come.
static inline void llm42_file_keep(FILE *file, const char *tail) {
    llm42_file *f = llm42_file_find(file);
    snprintf(f->tail, sizeof f->tail, "%s", tail);
}

// The name of a file that is left unfinished.
static inline void llm42_file_left(const llm42_file *f, char path[LLM42_FILE_PATH]) {
    snprintf(path, LLM42_FILE_PATH, "%.4060s.unfinished", f->path);
    const size_t used = strlen(path);
    for (int n = 2; !f->replaces && n < 1000 && access(path, F_OK) == 0; n++)
        snprintf(path + used, LLM42_FILE_PATH - used, ".%d", n);
}

// Closes a file and moves it to its name, or, with `whole` false, removes it. False, and errno: anything could not be
// written; then nothing is left behind, unless it is left unfinished, and what was written is of use.
static inline bool llm42_file_close(FILE *file, bool whole) {
    llm42_file *f = llm42_file_find(file);
    const bool moved = strcmp(f->part, f->path) != 0;
    bool good = !ferror(file);
    llm42_file_set(f, NULL);  // once it is closed, another one may have its address
    good &= fclose(file) == 0;
    const bool named = moved && whole && (good || f->left) && rename(f->part, f->path) == 0;
    const int why = errno;
    if (moved && !named) remove(f->part);
    if (moved && whole) good &= named;
    llm42_file_forget(f);
    errno = why;
    return good;
}

static inline bool llm42_file_finish(FILE *file) { return llm42_file_close(file, true); }
static inline void llm42_file_drop(FILE *file) { llm42_file_close(file, false); }

// Closes a file that was kept: it gets its last line and the name of a file that is left unfinished.
static inline bool llm42_file_leave(FILE *file) {
    llm42_file *f = llm42_file_find(file);
    char path[LLM42_FILE_PATH];
    if (!ferror(file)) fputs(f->tail, file);
    f->left = true;
    if (strcmp(f->part, f->path)) {
        llm42_file_left(f, path);
        memcpy(f->path, path, strlen(path) + 1);
    }
    return llm42_file_close(file, true);
}

// For the end of a program, however it ends.
static inline void llm42_files_end(void) {
    while (llm42_files) {
        llm42_file *f = llm42_files;
        if (!f->file) {  // it is being opened or closed
            if (strcmp(f->part, f->path)) unlink(f->part);
            llm42_file_forget(f);
        } else if (f->tail[0]) {
            llm42_file_leave(f->file);
        } else {
            llm42_file_drop(f->file);
        }
    }
}

// For a signal handler that ends the program at once. Files that were kept are left as parts.
static inline void llm42_files_remove(void) {
    for (const llm42_file *f = llm42_files; f; f = f->next)
        if (strcmp(f->part, f->path) && !f->tail[0]) unlink(f->part);
}

#endif  // LLM42_FILE_H
