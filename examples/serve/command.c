// command.c: a program of the user's that spells chats (--chat-command). It is run by a shell for each request, with
// one object of JSON on its standard input: `messages` as the client sent them, and `tools` and `chat_template_kwargs`
// if the client sent any. It prints the prompt, special tokens included, and ends with status 0. Status 3 says that the
// messages are at fault, and what is on standard error becomes an error 400. Any other end is an error 500. It is
// killed after --chat-timeout seconds, with all that it has started. Only the thread that reads long requests calls
// this.
#define _GNU_SOURCE  // pipe2
#include "serve.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

enum { COMMAND_REFUSED = 3, COMMAND_SHOWN = 400, COMMAND_SAID = 1 << 20 };

extern char **environ;

// A child whose three streams are pipes; -1: there is none.
typedef struct command {
    pid_t pid;
    int in, out, err;
    char *text, *said;  // stb_ds arrays: what has come from .out and .err
    size_t sent;
} command;

static bool command_start(command *c) {
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    char shell[] = "/bin/sh", option[] = "-c";
    char *const arguments[] = {shell, option, (char *)serve.command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, pipe_signal;
    bool fine = true;
    for (int i = 0; i < 3; i++) fine &= !pipe2(pipes[i], O_CLOEXEC);
    sigemptyset(&none);
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    for (int i = 0; i < 3; i++) posix_spawn_file_actions_adddup2(&files, pipes[i][i > 0], i);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&how, &pipe_signal);
    posix_spawnattr_setsigmask(&how, &none);
    fine = fine && !posix_spawn(&c->pid, shell, &files, &how, arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    for (int i = 0; i < 3; i++)
        for (int end = 0; end < 2; end++)
            if (pipes[i][end] >= 0 && (!fine || end == (i > 0))) close(pipes[i][end]);
    c->in = pipes[0][1], c->out = pipes[1][0], c->err = pipes[2][0];
    if (fine) fcntl(c->in, F_SETFL, O_NONBLOCK);
    return fine;
}

static void command_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void command_take(int *fd, char **to) {
    char part[4096];
    const ssize_t n = read(*fd, part, sizeof part);
    if (n > 0) memcpy(arraddnptr(*to, (size_t)n), part, (size_t)n);
    else if (n == 0 || errno != EINTR) command_close(fd);
}

// Writes the input and takes what is printed, until both outputs are shut. False: that took too long, or is too much.
static bool command_run(command *c, const char *input, size_t size, double until) {
    while (c->out >= 0 || c->err >= 0) {
        struct pollfd at[] = {{c->in, POLLOUT, 0}, {c->out, POLLIN, 0}, {c->err, POLLIN, 0}};
        const double left = until - serve_now();
        if (left <= 0 || arrlenu(c->text) > (size_t)serve.max_body || arrlenu(c->said) > COMMAND_SAID) return false;
        if (poll(at, 3, (int)(left * 1000) + 1) < 0 && errno != EINTR) return false;
        if (at[0].revents) {
            const ssize_t n = write(c->in, input + c->sent, size - c->sent);
            if (n > 0) c->sent += (size_t)n;
            if (c->sent == size || (n < 0 && errno != EAGAIN && errno != EINTR)) command_close(&c->in);
        }
        if (at[1].revents) command_take(&c->out, &c->text);
        if (at[2].revents) command_take(&c->err, &c->said);
    }
    return true;
}

// Waits for the end of the child, and kills it and what it has started when its time is over. False: it was killed.
static bool command_wait(const command *c, double until, bool in_time, int *status) {
    while (in_time) {
        const pid_t ended = waitpid(c->pid, status, WNOHANG);
        if (ended) return ended == c->pid;
        in_time = serve_now() < until;
        poll(NULL, 0, 2);
    }
    kill(-c->pid, SIGKILL);
    waitpid(c->pid, status, 0);
    return false;
}

// The text of what was printed to standard error, without the newline at its end.
static const char *command_said(command *c) {
    size_t size = arrlenu(c->said);
    while (size && strchr("\n\r", c->said[size - 1])) size--;
    if (size > COMMAND_SHOWN) size = COMMAND_SHOWN;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)c->said[i] < ' ' || (unsigned char)c->said[i] >= 0x7f) c->said[i] = ' ';
    arrsetlen(c->said, size);
    arrput(c->said, 0);
    return size ? c->said : "it said nothing on standard error";
}

static bool command_is_text(const char *text, size_t size) {
    for (size_t i = 0, n; i < size; i += n) {
        n = (size_t)tok_utf8(text + i, size - i);
        if (n < 1 || n > 4) return false;
    }
    return size > 0;
}

bool command_spell(serve_call *call, const char *input, size_t size, char **text) {
    command c = {.in = -1, .out = -1, .err = -1};
    const double until = serve_now() + (double)serve.chat_timeout;
    int status = 0;
    if (!command_start(&c))
        return serve_fail(call, 500, NULL, "chat_command_failed", "--chat-command: cannot start: %s", strerror(errno));
    const bool in_time = command_run(&c, input, size, until), ended = command_wait(&c, until, in_time, &status);
    command_close(&c.in), command_close(&c.out), command_close(&c.err);
    if (!ended && arrlenu(c.text) > (size_t)serve.max_body)
        serve_fail(call, 500, NULL, "chat_command_failed",
                   "--chat-command: printed more than %" PRId64 " bytes, the limit that --max-body sets: %s",
                   serve.max_body, command_said(&c));
    else if (!ended && arrlenu(c.said) > COMMAND_SAID)
        serve_fail(call, 500, NULL, "chat_command_failed",
                   "--chat-command: wrote more than %d bytes to standard error: %s", COMMAND_SAID, command_said(&c));
    else if (!ended)
        serve_fail(call, 500, NULL, "chat_command_failed", "--chat-command: not finished within %" PRId64 " s: %s",
                   serve.chat_timeout, command_said(&c));
    else if (WIFEXITED(status) && WEXITSTATUS(status) == COMMAND_REFUSED)
        serve_fail(call, 400, "messages", "invalid_value", "messages: %s", command_said(&c));
    else if (status)
        serve_fail(call, 500, NULL, "chat_command_failed", "--chat-command: ended with %s %d: %s",
                   WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                   command_said(&c));
    else if (!command_is_text(c.text, arrlenu(c.text)))
        serve_fail(call, 500, NULL, "chat_command_failed", "--chat-command: printed %s",
                   arrlen(c.text) ? "what is no UTF-8" : "nothing");
    arrfree(c.said);
    *text = c.text;
    return !call->status;
}
