#!/usr/bin/env bash
# Fails if no test passed or failed, and says so unless a package failed, whose error go test shows. It also fails if a test failed in a
# package that passed, or if a package ended without the results of its tests: go test believes the exit code of the process. Its arguments
# are files with the output of `go test -json`. With --skipped before them, a skipped test suffices. Under -cover, a package without tests passes
# with one line that starts with a tab.
set -euo pipefail
results='"pass", "fail"'
if [ "${1:-}" = --skipped ]; then
  results+=', "skip"'
  shift
fi

# A killed run ends with a part of a line. Without a file, no test ran. A package whose tests -run leaves out says so.
ran=$({ cat "$@" 2>/dev/null || true; } | jq -R 'fromjson? | select(.Package)' | jq --slurp -r "
  def some(condition): map(select(condition)) | length > 0; # any(generator; condition) of jq 1.6 is wrong if condition has two outputs
  def is(\$actions): [.Action] | inside(\$actions);
  (group_by(.Package) | map(
    if some(.Test and .Action == \"fail\") and some(.Test == null and .Action == \"pass\")
      then \"a test of \(.[0].Package) failed, and the package exits with 0: its TestMain must exit with the result of m.Run\"
    elif some(.Test == null and is([\"pass\", \"fail\", \"skip\"])) | not
      then \"the tests of \(.[0].Package) did not end: one of them has ended the process\"
    elif some(.Test == null and .Action == \"pass\") and (some(.Test) | not) and (some(.Output // \"\" | contains(\"no tests to run\") or test(\"^\\\\t.*coverage: \")) | not)
      then \"the tests of \(.[0].Package) did not run: its TestMain does not call m.Run, or TESTFLAGS selects none\"
    else empty end) | .[0]) as \$hidden |
  if \$hidden then \$hidden elif some(.Test and is([$results])) then \"tests\" elif some(.Action == \"fail\") then \"a failed package\" else \"\" end")
case $ran in
tests) exit ;;
'a failed package') ;;
'') echo 'no test ran: PKG or TESTFLAGS selects none, or all were skipped' >&2 ;;
*) echo "$ran" >&2 ;;
esac
exit 1
