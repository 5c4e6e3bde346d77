# waits.awk: how long requests wait for verification (exercise 2 of LESSON.md), from a trace that build/sweep wrote.
# W is the window, N the number of new tokens of a request. A request's window is full if it has W - 1 candidates, or
# all that were asked for. The request waits in a pass if its window was full before and the pass does not verify it.
#
#     awk -F '\t' -v W=16 -v N=256 -f examples/lesson/waits.awk run.tsv
$2 == "pass" {  # what happened in a pass follows its line
    for (r in full) waits++
    split("", full)
    for (r in candidates)
        if (candidates[r] && (candidates[r] >= W - 1 || candidates[r] + tokens[r] >= N)) full[r]
    replays += $9 > 0
}
$2 == "candidate" { candidates[$3] += $4 }
$2 == "verified" { delete full[$3] }
$2 == "committed" { tokens[$3] += $4; candidates[$3] = 0 }
END {
    for (r in full) waits++
    printf "%d replay passes, %d waits\n", replays, waits
}
