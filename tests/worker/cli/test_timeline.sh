#!/usr/bin/env bash
# muster timeline with files whose spans are known, with files that ranks and jobs record, and with files
# that are not timelines.
set -eu
muster=$MUSTER_BIN/muster
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# Known spans: sends from 0 to 200 and from 100 to 300 us, which overlap, and a reduction from 250 to 350 us.
span() { # stage, start, duration, bytes
    echo "{\"name\":\"$1\",\"cat\":\"$1\",\"ph\":\"X\",\"pid\":7,\"tid\":1,\"ts\":$2,\"dur\":$3,\"args\":{\"bytes\":$4}}"
}
{
    echo "["
    echo '{"name":"process_name","ph":"M","pid":7,"tid":0,"args":{"name":"rank 7"}},'
    echo '{"name":"generation begins","ph":"i","s":"p","pid":7,"tid":0,"ts":1.000,"args":{"generation":1,"rank":7,"size":9}},'
    echo "$(span send 0.000 200.000 100),"
    echo "$(span reduce 250.000 100.000 7)   ,"
    echo '{"name":"missing","ph":"i","s":"p","pid":7,"tid":0,"ts":1.000,"args":{"spans":3}},'
    span send 100.000 200.000 1000
    echo "]"
} >"$folder/known"
"$muster" timeline --json "$folder/known" >"$folder/out"
expected="{\"file\":\"$folder/known\",\"rank\":7,\"generations\":1,\"lasted_us\":350.0,\"missing_spans\":3,\"missing_tensors\":0,\"compared_operations\":0,\"last_in\":0,\"late_us\":0.0,\"stages\":["
expected+='{"stage":"send","spans":2,"bytes":1100,"busy_us":300.0,"at_once":1.3333333333333333,"overlaps":{"reduce":0.16666666666666666}},'
expected+='{"stage":"reduce","spans":1,"bytes":7,"busy_us":100.0,"at_once":1.0,"overlaps":{"send":0.5}}]}'
[ "$(cat "$folder/out")" = "$expected" ] || fail "known spans: $(cat "$folder/out")"
"$muster" timeline "$folder/known" >"$folder/out"
grep -qE '^reduce +1 +7 +0\.100 +1\.00 +50% +-$' "$folder/out" || fail "known spans: $(cat "$folder/out")"
# The file of a member that was killed in a write.
sed -e '$d' -e 's/^\(.*1000}}\)$/\1      /' "$folder/known" >"$folder/torn"
"$muster" timeline --json "$folder/torn" | cmp -s - <(echo "${expected/known/torn}") || fail "without its end"

# Ranks record: each has a file with all stages of its transport.
stages_of() {
    "$muster" timeline --json "$1" | grep -oE '"stage":"[a-z ]+"' | cut -d'"' -f4 | xargs
}
for transport in tcp shm inproc; do
    "$muster" bench allreduce -n 3 --transport $transport --bytes 1M --iterations 2 --algorithm ring_chunked \
        --timeline "$folder/$transport" >"$folder/out"
    for rank in 0 1 2; do
        stages=$(stages_of "$folder/$transport.1.$rank.json")
        [[ "$stages" == "call send "*"receive receive segment reduce"* ]] || fail "$transport: $stages"
    done
done
"$muster" timeline "$folder"/tcp.1.?.json >"$folder/out"
[ "$(grep -cE '^/.*: rank [012], [0-9]+ calls in [0-9.]+ ms$' "$folder/out")" = 3 ] || fail "$(cat "$folder/out")"
[ "$(grep -cE '^reduce( +[0-9]+){2} ' "$folder/out")" = 3 ] || fail "$(cat "$folder/out")"
# Nothing is reduced before the first bytes of its message have arrived, or after the message is complete.
"$muster" timeline --json "$folder/tcp.1.1.json" >"$folder/out"
grep -oE '"stage":"reduce".*' "$folder/out" | grep -qE '"receive":(0\.9[0-9]*|1\.0)' ||
    fail "reduce is not within receive: $(cat "$folder/out")"

# A picture: a line for each stage and peer with boxes; the file is written whole or not at all.
"$muster" timeline --svg "$folder/svg" "$folder"/tcp.1.?.json >"$folder/out"
for text in '>rank 0<' '>rank 2<' '>send to 1<' '>receive segment from 0<' 'class="span s0"' 'class="span s7"' '^</svg>$'; do
    grep -q "$text" "$folder/svg" || fail "the picture has no $text: $(cat "$folder/svg")"
done
! command -v xmllint >/dev/null || xmllint --noout "$folder/svg" || fail "the picture is not XML"
{ echo '['; span call 5.000 0.000 8; } >"$folder/instant"
"$muster" timeline --svg "$folder/svg" "$folder/instant" >"$folder/out"
grep -q '>A call of 8 bytes: 0.0 us<' "$folder/svg" || fail "a call that took no time: $(cat "$folder/svg")"
no_picture() {
    local word=$1 status=0
    shift
    "$muster" timeline --svg "$@" >"$folder/out" 2>"$folder/errors" || status=$?
    [ "$status $(wc -l <"$folder/errors")" = "1 1" ] || fail "--svg $*: $status, $(cat "$folder/errors")"
    grep -q "$word" "$folder/errors" || fail "--svg $*: $(cat "$folder/errors")"
    [ ! -e "$folder/no_svg" ] || fail "--svg $*: there is a picture"
}
no_picture "rank 7 has made no call" "$folder/no_svg" "$folder/known"
no_picture "at another time" "$folder/no_svg" "$folder/tcp.1.0.json" "$folder/shm.1.1.json"
no_picture "No such file" "$folder/no/svg" "$folder/tcp.1.0.json"
no_picture "No space left" /dev/full "$folder/tcp.1.0.json"

# Tensors: two ranks, two steps of two tensors. In the first operation rank 1 comes 30 us later, in the second
# rank 0 comes 10 us later.
tensors() { # rank, start of the first operation, start of the second
    local rank=$1 sequence=0 start
    echo "["
    echo "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":$rank,\"tid\":0,\"args\":{\"name\":\"rank $rank\"}},"
    for tid in 1 2; do
        echo "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":$rank,\"tid\":$tid,\"args\":{\"name\":\"tensor-$tid\"}},"
    done
    for start in "$2" "$3"; do
        sequence=$((sequence + 1))
        for tid in 1 2; do
            local place="\"ph\":\"X\",\"pid\":$rank,\"tid\":$tid" end=$((100 * sequence))
            local args="\"args\":{\"bytes\":40,\"context\":3,\"sequence\":$sequence,\"fused\":2}"
            echo "{\"name\":\"tensor-$tid\",\"cat\":\"tensor\",$place,\"ts\":$((start - 5 * tid)).000,\"dur\":$((end - start + 5 * tid)).000,$args},"
            echo "{\"name\":\"tensor on wire\",\"cat\":\"tensor on wire\",$place,\"ts\":$start.000,\"dur\":$((end - start)).000,$args},"
        done
    done
    echo '{"name":"missing","ph":"i","s":"p","pid":7,"tid":0,"ts":1.000,"args":{"tensors":8}}'
    echo "]"
}
tensors 0 50 150 >"$folder/one"
tensors 1 80 140 >"$folder/other"
"$muster" timeline "$folder/one" "$folder/other" --svg "$folder/svg" --step >"$folder/out"
grep -q '^8 tensors are missing: ' "$folder/out" || fail "missing tensors: $(cat "$folder/out")"
[ "$(grep '^last to come' "$folder/out" | cut -d, -f1-2 | xargs)" = \
    "last to come to 1 of 2 operations with tensors, 10.0 us after the first rank (median) last to come to 1 of 2 operations with tensors, 30.0 us after the first rank (median)" ] ||
    fail "who came last: $(cat "$folder/out")"
grep -q '>A step of 80 bytes: 70.0 us<' "$folder/svg" || fail "the step: $(cat "$folder/svg")"
[ "$(grep -c 'class="span s1[13]"' "$folder/svg")" = 8 ] || fail "the boxes of the step: $(cat "$folder/svg")"
[ "$(grep -c '>tensor-[12]<' "$folder/svg")" = 4 ] || fail "the lines of the step: $(cat "$folder/svg")"
! command -v xmllint >/dev/null || xmllint --noout "$folder/svg" || fail "the picture of a step is not XML"
no_picture "rank 7 has no tensors" "$folder/no_svg" --step "$folder/known"
status=0
"$muster" timeline --step "$folder/one" >"$folder/out" 2>"$folder/errors" || status=$?
[ "$status" = 2 ] || fail "--step without --svg: $status"

# A job records because of its environment; an allreduce has its name and algorithm.
MUSTER_TIMELINE=$folder/job "$muster" run -n 2 -- "$MUSTER_BIN/hello_allreduce" >"$folder/out" 2>&1 ||
    fail "$(cat "$folder/out")"
for rank in 0 1; do
    grep -qE '^\{"name":"allreduce","cat":"call",.*"algorithm":"[a-z_]+"' "$folder/job.1.$rank.json" ||
        fail "$(cat "$folder/job.1.$rank.json")"
done
# A job whose files cannot be created continues, with one line for each member.
MUSTER_TIMELINE=$folder/no/job "$muster" run -n 2 -- "$MUSTER_BIN/hello_allreduce" >"$folder/out" 2>&1 ||
    fail "$(cat "$folder/out")"
[ "$(grep -c 'timeline .*/no/job' "$folder/out")" = 2 ] || fail "$(cat "$folder/out")"

# A file that is not a timeline: one line that names the file, and nothing else.
refuse() {
    local status=0
    "$muster" timeline "$1" >"$folder/out" 2>"$folder/errors" || status=$?
    [ "$status $(wc -l <"$folder/errors")" = "1 1" ] || fail "$1: $status, $(cat "$folder/errors")"
    grep -qF "$1: $2" "$folder/errors" || fail "$1: $(cat "$folder/errors")"
    [ ! -s "$folder/out" ] || fail "$1: $(cat "$folder/out")"
}
head -c 100000 /dev/urandom >"$folder/random"
head -c 100000 /dev/zero >"$folder/zeros"
yes '[' | head -1000000 | tr -d '\n' >"$folder/deep"
: >"$folder/empty"
echo '{"traceEvents":[]}' >"$folder/object"
{ echo '['; span juggle 1 1 1; } >"$folder/stage"
{ echo '['; span send -1 1 1; } >"$folder/before"
{ echo '['; span send 1 1e300 1; } >"$folder/endless"
{ echo '['; span send 1 1 -1; } >"$folder/negative"
{ cat "$folder/known"; span send 1 1 1; } >"$folder/behind"
refuse "$folder/random" "line 1 is not part of a timeline"
refuse "$folder/zeros" "line 1 is not part of a timeline"
refuse "$folder/deep" "line 1 is not part of a timeline"
refuse "$folder/empty" "the file is empty"
refuse "$folder/object" "line 1 is not part of a timeline"
refuse "$folder/stage" "line 2 is not part of a timeline"
refuse "$folder/before" "line 2 is not part of a timeline"
refuse "$folder/endless" "line 2 is not part of a timeline"
refuse "$folder/negative" "line 2 is not part of a timeline"
refuse "$folder/behind" "line 9 is not part of a timeline"
refuse "$folder/absent" "No such file"
refuse "$folder" "Is a directory"
status=0
"$muster" timeline 2>"$folder/errors" || status=$?
[ $status = 2 ] || fail "without a file: $status"
status=0
"$muster" timeline "$folder/known" 2>"$folder/errors" >/dev/full || status=$?
[ $status = 1 ] || fail "output that cannot be written: $status"
echo "timelines are read"
