#!/usr/bin/env bash
# House rules that a script can see: sizes, places, what opens a file, what a README says.
set -eu
cd "${MUSTER_SOURCE:-$(dirname "$0")/../..}"
failed=0
complain() {
    echo "$1"
    failed=1
}
sources() { find worker collectives elastic rendezvous tests -name '*.[ch]'; }

# The top level holds exactly this, and dot files.
expected="CMakeLists.txt CMakePresets.json LICENSE README.md collectives deploy elastic rendezvous tests worker"
found=$(find . -mindepth 1 -maxdepth 1 ! -name '.*' ! -name build -printf '%f\n' | LC_ALL=C sort | xargs)
[ "$found" = "$expected" ] || complain "top level holds \"$found\", not \"$expected\""

while read -r file; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 600 ] || complain "$file has $lines lines, 600 are the most"
done < <(sources)

# A file of code opens with a comment that says what it is for. The README of a folder is a page; that of the top
# level shows the whole.
while read -r file; do
    complain "$file does not open with a comment that says what it is for"
done < <(sources | grep '\.c$' | LC_ALL=C sort | xargs awk 'FNR == 1 && !/^\/[*\/]/ {print FILENAME}')
while read -r page; do
    [ "$(wc -l <"$page")" -le 80 ] || complain "$page has more than the 80 lines of a page"
done < <(find . -mindepth 2 -name README.md -not -path './build/*' -printf '%P\n' | LC_ALL=C sort)

words=$(sources | xargs grep -nE '\b(TODO|FIXME|XXX)\b' || true)
[ -z "$words" ] || complain "unfinished by its own word: $words"

# The README shows the example word for word, and its links lead somewhere.
example=worker/examples/hello_allreduce.c
awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' README.md | cmp -s - "$example" ||
    complain "README.md does not show $example word for word"
while read -r page; do
    while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || complain "$page: link to $link leads nowhere"
    done < <(grep -oE '\]\([^)#]+\)' "$page" | sed -E 's/^\]\(|\)$//g' | grep -v '^[a-z]*:')
done < <(find . -name '*.md' -not -path './build/*')
# Tests that a page of tests/ names exist; NAME_all is a long form of NAME.
while read -r name; do
    name=${name%_all}
    ls tests/"${name%/*}"/test_"${name##*/}".* >/dev/null 2>&1 || complain "tests/ has no $name, which a page there names"
done < <(cat tests/*.md | grep -E '^\| ' | grep -oE '(^|[ (`])(rendezvous|worker|conformance|elastic|e2e|bench|faults|verbs)/[a-z_/]+' | tr -d ' (`' | sort -u)

# Non-static functions are muster_<module>_<verb>; only what the public headers declare is exported.
if [ -n "${MUSTER_BIN:-}" ] && command -v nm >/dev/null; then
    for library in "${MUSTER_BIN%/bin}"/worker/libmuster.a "${MUSTER_BIN%/bin}"/rendezvous/libmusterd_static.a; do
        alien=$(nm --defined-only -g "$library" 2>/dev/null |
            awk 'NF == 3 && $3 !~ /^(muster_|__|_)/ {print $3}' | sort -u | xargs)
        # rendezvous/http/library_errors.h says why it has a name of libmicrohttpd's.
        [ "$alien" = MHD_queue_response ] || [ -z "$alien" ] || complain "$library: names without muster_: $alien"
    done
fi
[ $failed = 0 ] && echo "$(sources | wc -l) files keep to the house rules"
exit $failed
