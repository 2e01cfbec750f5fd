# Runs compiled tests in the folder of their package, and counts them into $FIGURES.
# For steps: . "$VM/vm/tests.sh"
#
#   run_tests PACKAGE PATTERN [FLAG...]
run_tests() {
  local package=$1 pattern=$2 out=/run/vm/tests.out status
  shift 2
  cd "$VM/src/$package" || return 1
  "$VM/tests/$(echo "$package" | tr / -).test" -test.v -test.run "$pattern" -test.timeout 3h "$@" > "$out" 2>&1
  status=$?
  grep -E '^(=== RUN|--- |    --- |ok|FAIL|PASS|panic)|^ +[a-z_]+_test.go' "$out" | grep -v '=== RUN' || :
  {
    echo "$package: passed $(grep -c '^--- PASS' "$out")"
    echo "$package: failed $(grep -c '^--- FAIL' "$out")"
    echo "$package: skipped $(grep -c '^--- SKIP' "$out")"
  } | sed 's/: /-/' >> "$FIGURES"
  [ $status -eq 0 ] && grep -q '^--- PASS' "$out"
}
