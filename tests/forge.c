// forge FROM TO: copies tiny42's weights and changes a matrix of the copy so that the weak hash of the model, that of
// transcripts of format 1, stays the same: test_audit.sh. The hash is h = llm42_hash(h ^ word) for each word of eight
// bytes. So a word is changed, and the next one by what the hash has changed to: behind the two it is the old hash.
// The next word would then be noise; low bits of the first are tried until it has four values below 2.
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm42.h"

enum { PAIRS = 6144, FORGED = 5811 };  // of the matrix of 128 x 384 bf16 values

// Are the four bf16 values of a word below 2 in magnitude?
static int is_plausible(uint64_t word) {
    for (int i = 0; i < 4; i++)
        if ((word >> (16 * i) & 0x7fff) >= 0x4000) return 0;
    return 1;
}

static int forge(unsigned char *matrix) {
    uint64_t hash = 0, pair[2];
    int forged = 0;
    for (int i = 0; i < PAIRS; i++) {
        memcpy(pair, matrix + 16 * i, sizeof pair);
        const uint64_t first = llm42_hash(hash ^ pair[0]);
        for (uint64_t change = 1; forged < FORGED && change < 4096; change++) {
            const uint64_t word = pair[0] ^ change, next = pair[1] ^ first ^ llm42_hash(hash ^ word);
            if (!is_plausible(next)) continue;
            memcpy(matrix + 16 * i, (uint64_t[]){word, next}, sizeof pair);
            forged++;
            break;
        }
        hash = llm42_hash(first ^ pair[1]);
    }
    return forged;
}

int main(int argc, char **argv) {
    static unsigned char file[1 << 22];
    const char name[] = "\"model.layers.2.mlp.down_proj.weight\"";
    FILE *from = argc == 3 ? fopen(argv[1], "rb") : NULL, *to = from ? fopen(argv[2], "wb") : NULL;
    if (!to) return 2;
    const size_t size = fread(file, 1, sizeof file - 1, from);
    uint64_t header;
    unsigned long begin;
    memcpy(&header, file, sizeof header);
    const char *at = strstr((char *)file + 8, name);
    at = at ? strstr(at, "\"data_offsets\":[") : NULL;
    if (!at || sscanf(at, "\"data_offsets\":[%lu", &begin) != 1) return 2;
    const int forged = forge(file + 8 + header + begin);
    printf("%d of %d pairs of words are changed\n", forged, (int)PAIRS);
    const int written = fwrite(file, 1, size, to) == size;
    fclose(from);
    return !(fclose(to) == 0 && written && forged == FORGED);
}
