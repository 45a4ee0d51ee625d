#!/usr/bin/env bash
# `muster plan --svg` draws every algorithm as valid XML, and writes a picture whole or not at all.
set -u
muster=$MUSTER_BIN/muster
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
picture=$folder/picture.svg

fail() {
    echo "FAILED: $*"
    failed=1
}

# draw ARGUMENTS...: into $picture.
draw() {
    "$muster" plan "$@" --svg "$picture" >"$folder/text" 2>&1 || fail "plan $*: $(cat "$folder/text")"
    if command -v xmllint >/dev/null; then
        xmllint --noout "$picture" 2>&1 || fail "plan $*: the picture is not XML"
    fi
}

# shows PATTERN TIMES: so many lines of the picture match the pattern.
shows() {
    local found
    found=$(grep -c -e "$1" "$picture")
    [ "$found" = "$2" ] || fail "$(sed -n 's|^<desc>\(.*\)</desc>|\1|p' "$picture"): $found lines like \"$1\", not $2"
}

# refuse STATUS PATTERN ARGUMENTS...: prints one line, and leaves an existing picture unchanged.
refuse() {
    local status=$1 pattern=$2 text code
    shift 2
    echo before >"$picture"
    text=$("$muster" plan "$@" 2>&1)
    code=$?
    [ "$code" = "$status" ] || fail "plan $*: exit status $code instead of $status: $text"
    grep -q -e "$pattern" <<<"$text" || fail "plan $*: no \"$pattern\" in: $text"
    [ "$(wc -l <<<"$text")" = 1 ] || fail "plan $*: more than one line: $text"
    [ "$(cat "$picture")" = before ] || fail "plan $*: the old picture is gone"
}

while read -r collective algorithm _; do
    draw "$collective" --hosts 3,1,2 --algorithm "$algorithm"
    draw "$collective" --hosts 3,1,2 --algorithm "$algorithm" --simulate
done < <("$muster" plan --list)

# A ring of four: three messages of each rank to reduce, three more to spread the results.
draw allreduce --ranks 4 --algorithm ring
shows '<desc>muster plan allreduce --ranks 4 --algorithm ring</desc>' 1
shows '<rect class="send" .*<title>\|<g><title>.* sends .*<rect class="send"' 24
shows '<rect class="add"' 13  # with the one in the legend
shows '<rect class="take"' 13
shows 'class="near" marker-end' 25
shows 'class="far" marker-end' 0
shows '>time 5<' 1
shows '>time 6<' 0
shows 'prefers-color-scheme:dark' 1
draw allreduce --ranks 4 --hosts 2 --algorithm ring
shows 'class="far" marker-end' 13 # two of the four links, six times, and the legend
shows '>host 1<' 1
draw allreduce --ranks 4 --algorithm ring_chunked
shows '>lane 1<' 4
draw barrier --ranks 4
shows 'sends an empty message' 9 # in tips and in the legend
draw allreduce --ranks 8 --algorithm ring --rank 3
shows '<rect class="send"' 29 # its own and its neighbour's, 14 each, and the legend
draw allreduce --ranks 8 --algorithm ring --simulate
shows '>0 us<' 1
cp "$picture" "$folder/first.svg"
draw allreduce --ranks 8 --algorithm ring --simulate
cmp -s "$picture" "$folder/first.svg" || fail "the same request draws another picture"
[ "$("$muster" plan barrier --ranks 2 --svg - | tail -1)" = '</svg>' ] || fail "- is standard output"

refuse 2 'too many for a picture: at most 64, 256 and 8192 fit' \
    allreduce --ranks 65 --algorithm recursive_doubling --svg "$picture"
refuse 2 'needs at least 2 hosts' allreduce --ranks 4 --algorithm hierarchical --svg "$picture"
refuse 1 'No such file or directory' allreduce --ranks 4 --svg "$folder/none/picture.svg"
if [ -w /dev/full ]; then
    refuse 1 'No space left' allreduce --ranks 4 --svg /dev/full
    "$muster" plan allreduce --ranks 4 --svg - >/dev/full 2>/dev/null && fail "a full disk is not noticed"
fi
if [ $failed = 0 ] && ! command -v xmllint >/dev/null; then
    echo "SKIPPED: there is no xmllint (in Debian: libxml2-utils); all but the XML is as it should be"
    exit 77
fi
exit $failed
