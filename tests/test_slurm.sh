#!/bin/bash
# Sweeps on a cluster, by the commands of sweep/README.md themselves: GNU parallel, and a Slurm of this test's own
# (munged, slurmctld, slurmd), run the shares of a grid. A share is killed at a cell that is not written yet; the merge
# names that cell; the commands are given again; and the result is, to the byte, that of one run of the whole grid.
#
# What is not installed here is downloaded with apt and unpacked in a temporary folder: nothing is installed. There the
# daemons have a configuration, a key and a socket of their own. They take free ports, need no systemd and no cgroups,
# and end with the test.
# shellcheck disable=SC2086,SC2154  # grid is a list of words, and the commands set job and others
export LC_ALL=C
source tests/check.sh
here=$PWD programs=$(realpath "${B:-build}") dir=$(mktemp -d) || exit 1
log=$dir/log
# A cluster or a configuration of the caller's must not be met.
unset B "${!SLURM@}" "${!SBATCH@}" "${!SQUEUE@}" "${!SCANCEL@}" "${!PARALLEL@}"
export SLURM_CONF=$dir/slurm.conf
unpacked=$dir/packages

within() {  # within SECONDS COMMAND...: tries until it succeeds
    local end=$((SECONDS + $1))
    until "${@:2}" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# The processes that this test has started: SLURM_CONF names its folder, and all inherit it.
ours() (
    unset SLURM_CONF
    grep -lzFx "SLURM_CONF=$dir/slurm.conf" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3
)
end_ours() {
    local process
    for process in $(ours); do kill -KILL "$process" 2>/dev/null; done
    [ -z "$(ours)" ]
}
trap 'within 10 end_ours; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

# >>packages -----------------------------------------------------------------------------------------------------
fetch() {  # fetch PACKAGE...: unpacks these, and what they need and is not installed
    mkdir -p "$unpacked/partial" && rm -f "$unpacked"/*.deb &&
        apt-get install -y --no-install-recommends --download-only -o Debug::NoLocking=1 \
            -o Dir::Cache::archives="$unpacked" "$@" || return 1
    local package
    for package in "$unpacked"/*.deb; do
        [ ! -e "$package" ] || dpkg-deb -x "$package" "$unpacked" || return 1
    done
}
get() {  # get PACKAGE...: if that fails, root fetches the lists of packages first
    fetch "$@" || { [ "$(id -u)" = 0 ] && apt-get update && fetch "$@"; }
} >"$dir/apt" 2>&1
find_unpacked() {
    local libraries
    libraries=$(find "$unpacked" -name '*.so*' -printf '%h\n' 2>/dev/null | sort -u | paste -sd :)
    export PATH="$unpacked/usr/sbin:$unpacked/usr/bin:$unpacked/sbin:$unpacked/bin:$PATH:/usr/sbin:/sbin"
    [ -z "$libraries" ] || export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    PERL5LIB=$(find "$unpacked"/usr/share/perl "$unpacked"/usr/lib/*/perl -mindepth 1 -maxdepth 1 2>/dev/null |
        paste -sd :)
    export PERL5LIB
}
daemon() { command -v "$1-wlm" || command -v "$1"; }  # Debian's packages add -wlm
have_slurm() { daemon slurmctld && daemon slurmd && daemon slurmstepd && command -v munged sbatch; } >/dev/null
have_parallel() { parallel --version 2>/dev/null | grep -q '^GNU parallel'; }  # there is another of this name

# >>grid ---------------------------------------------------------------------------------------------------------
commands() {  # commands PATTERN DIR FILE: the first code block of sweep/README.md after a line with the pattern
    awk -v pattern="$1" '$0 ~ pattern {found = 1} /^```/ {if (found && inside++) exit; next} inside {print}' \
        sweep/README.md | sed "s|\bDIR\b|${2:-}|g; s|\bFILE\b|${3:-}|g; s|\bNAME.tsv|h100-pcie-paper.tsv|
        s|PARTITION=NAME|PARTITION=other|; s|^\(grid=\".*\)\"$|\1 --requests 200\"|"
}
# A folder as the repository's root is. In it build/sweep holds the second cell of share 2 of 16, if there is a file
# `hold`: what the cell's file is written to is then a pipe that nobody reads, so that the share waits there.
make_folder() {
    export HOME=$dir/home TMPDIR=$dir/tmp
    mkdir -p "$HOME" "$TMPDIR" "$dir/root/build" && cd "$dir/root" && ln -s "$here/sweep" sweep || exit 1
    cat >build/sweep <<END
#!/bin/bash
case "\$*" in
*"--cell 2/"*) [ ! -e hold ] || { echo \$\$ >held && mkfifo "\$(cat hold).\$\$.part"; } ;;
esac
exec "$programs/sweep" "\$@"
END
    chmod +x build/sweep
    eval "$(commands '^The commands that follow')" >list  # sets grid
    build/sweep $grid --out whole.tsv >/dev/null
    build/sweep $grid --cells first --cell 2/48 --quiet && build/sweep $grid --cells second --cell 18/48 --quiet
    first=$(ls first) second=$(ls second)
    check "--list shows the grid's 48 cells" [ "$(tail -n 1 list | cut -f 1)" = 48 ]
}
hold() { mkdir -p "$1" && echo "$1/$2" >hold; }  # hold DIR CELL: from now on
held() { [ -p "$(cat hold).$(cat held).part" ]; }
first_and_held() { [ -e "$1/$first" ] && held; }  # first_and_held DIR: one cell of the share is finished
kill_held() { ours | grep -qx "$(cat held)" && kill -KILL "$(cat held)"; }
finished() { (cd "$1" && find . -name '*.tsv' -type f -printf '%f %i %T@\n' | sort); }
cut_off() {  # cut_off DIR FILE LOG: what a killed share leaves, and what the merge said
    check "$1: no half result" [ ! -e "$1/$second" ]
    check "$1: the merge names the missing cell" grep -q "$second: missing" "$3"
    check "$1: and writes nothing" [ ! -e "$2" ]
    echo "# half a cell" >"$1/$second.1.part"
    finished "$1" >before
    rm -f hold
}
whole() {  # whole DIR FILE LOG...: the same commands, given again, have run what was missing and nothing else
    local there
    there=$(wc -l <before)
    check "$1: as one run of the whole grid" cmp whole.tsv "$2"
    check "$1: finished cells are kept" [ -z "$(finished "$1" | comm -13 - before)" ]
    check "$1: only missing cells are run" \
        [ "$(awk '/^share/ {run += $3; there += $6} END {print run, there}' "${@:3}")" = "$((48 - there)) $there" ]
}

# >>parallel -----------------------------------------------------------------------------------------------------
test_parallel() {
    local run several
    run=$(commands '^### With GNU parallel' alone alone.tsv) several=$(commands '^On several machines' hosts)
    hold alone "$second"
    (eval "$run") >alone.log 2>&1 &
    check "parallel: a share waits at its second cell" within 60 first_and_held alone
    check "parallel: the share is killed" kill_held
    wait $!
    cut_off alone alone.tsv alone.log
    eval "$run" >alone.log 2>&1
    whole alone alone.tsv alone.log

    # Another machine, as far as parallel can tell: a login opens in the home folder and has none of our variables.
    cat >ssh <<'END'
#!/bin/bash
while [ "$1" != -- ]; do shift; done
cd && exec env -i SHELL=/bin/bash HOME="$HOME" PATH="$PATH" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" \
    PERL5LIB="$PERL5LIB" SLURM_CONF="$SLURM_CONF" bash -c "${*:2}"
END
    chmod +x ssh
    PARALLEL_SSH=$PWD/ssh eval "$several" >hosts.log 2>&1
    build/sweep $grid --merge hosts --out hosts.tsv >>hosts.log 2>&1
    check "parallel: on several machines" cmp whole.tsv hosts.tsv
}

# >>slurm --------------------------------------------------------------------------------------------------------
free_port() {  # free_port FROM: one that nobody listens on, of the 5,000 from there
    local port
    while port=$(($1 + RANDOM % 5000)) && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo $port
}
configuration() {
    local name=${HOSTNAME%%.*} plugins
    plugins=$(find "$unpacked" -type d -name slurm-wlm -path '*/lib/*' 2>/dev/null)
    [ -z "$plugins" ] || echo "PluginDir=$plugins"
    cat <<END
ClusterName=llm42-test
SlurmctldHost=$name(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$(free_port 20000)
SlurmdPort=$(free_port 25000)
AuthType=auth/munge
AuthInfo=socket=$dir/munge
CredType=cred/munge
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MaxArraySize=17
# The node claims more than this machine has, so that all tasks run at once.
SlurmdParameters=config_overrides
NodeName=node NodeHostname=$name NodeAddr=127.0.0.1 CPUs=128 RealMemory=1000000 State=UNKNOWN
PartitionName=usual Nodes=node Default=YES
PartitionName=other Nodes=node
END
}
slurm_ready() { [ "$(sinfo -h -o %T | sort -u)" = idle ]; }
ready_or_dead() {
    local process
    for process in "${daemons[@]}"; do kill -0 "$process" || return 0; done
    slurm_ready
}
start_slurm() {
    mkdir "$dir/state" "$dir/spool" && configuration >"$SLURM_CONF" || return 1
    echo CgroupPlugin=cgroup/v1 >"$dir/cgroup.conf"  # nothing uses it, but slurmd refuses to find out that there is none
    (umask 077 && head -c 1024 /dev/urandom >"$dir/key") || return 1
    munged --foreground --force --key-file="$dir/key" --socket="$dir/munge" --pid-file="$dir/munged.pid" \
        --seed-file="$dir/seed" >"$dir/munged.log" 2>&1 &
    within 10 [ -S "$dir/munge" ] || return 1
    "$(daemon slurmctld)" -D >"$dir/slurmctld.log" 2>&1 &
    daemons=($!)
    "$(daemon slurmd)" -D -N node -d "$(daemon slurmstepd)" >"$dir/slurmd.log" 2>&1 &
    daemons+=($!)
    disown -a  # or the shell would report that they were killed
    within 30 ready_or_dead && slurm_ready
}
submit() {  # submit DIR FILE: sets job, the array, and merge
    eval "$(commands '^### With Slurm' "$1" "$2")" >submitted 2>&1
    merge=$(sed -n 's/^Submitted batch job //p' submitted)
}
state() { scontrol show job -o "$2" | grep -E " JobState=($1) "; }  # state PATTERN JOB: is the job's state one of these?
ended() { state "COMPLETED|FAILED|CANCELLED|TIMEOUT" "$1"; }

test_killed_task() {
    hold cluster "$second"
    submit cluster cluster.tsv
    check "slurm: a task waits at its second cell" within 60 first_and_held cluster
    check "slurm: the task is killed" scancel --signal=KILL --batch "${job}_2"
    check "slurm: the merge runs all the same" within 60 ended "$merge"
    cut_off cluster cluster.tsv "slurm-$merge.out"
    submit cluster cluster.tsv
    check "slurm: the merge runs again" within 60 ended "$merge"
    whole cluster cluster.tsv sweep-"${job}"_*.log
}
# Two cells for 16 tasks, in a partition of the user's, and a task that Slurm starts again.
test_requeued_task() {
    local grid="--calibration sweep/calibration/h100-pcie-paper.tsv --ratio 0.5,1 --requests 200" what
    build/sweep $grid --cells last --cell 2/2 --quiet && build/sweep $grid --out two.tsv --quiet
    eval "$(commands 'set these variables first')"
    hold few "$(ls last)"
    submit few few.tsv
    check "slurm: the task of the second cell waits" within 60 held
    for what in Partition=other TimeLimit=08:00:00; do
        check "slurm: $what" grep -q "\b$what\b" <(scontrol show job "${job}_2")
        check "slurm: $what for the merge" grep -q "\b$what\b" <(scontrol show job "$merge")
    done
    rm hold
    check "slurm: a task is given back" scontrol requeue "${job}_2"
    check "slurm: and waits" within 60 state PENDING "${job}_2"
    # For two minutes, if nobody asked. A node refuses a job that it has killed in the same second.
    check "slurm: and begins again" scontrol update JobId="${job}_2" StartTime=now+2
    check "slurm: the merge has waited for it" within 60 ended "$merge"
    check "slurm: two cells from 16 tasks" cmp two.tsv few.tsv
    check "slurm: all tasks have succeeded" [ "$(scontrol show job -o "$job" | grep -c ' JobState=COMPLETED ')" = 16 ]
    check "slurm: the limit of an array plus one" grep -q '^MaxArraySize *= 17$' <(scontrol show config)
    check "slurm: a larger array is refused" bash -c "! sbatch --array=1-17 sweep/slurm.sh large $grid"
}

# >>run ----------------------------------------------------------------------------------------------------------
packages=()
have_parallel || packages+=(parallel)
have_slurm || packages+=(slurmctld slurmd slurm-client munge)
[ ${#packages[@]} = 0 ] || get "${packages[@]}"
find_unpacked
make_folder
if have_parallel; then test_parallel; else skip parallel "no GNU parallel, and apt cannot get it"; fi
if ! have_slurm; then
    skip slurm "no slurmctld, slurmd, sbatch, munged, and apt cannot get them"
elif ! start_slurm; then
    skip slurm "it does not start here: $(cat "$dir"/munged.log "$dir"/slurm*.log | grep -iE 'error|fatal' | tail -n 1)"
else
    test_killed_task
    test_requeued_task
fi
check "nothing is left running" within 10 end_ours

finish
