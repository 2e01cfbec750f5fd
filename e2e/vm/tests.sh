# Runs compiled tests in the folder of their package, and counts them into $FIGURES.
# For steps: . "$VM/vm/tests.sh"
#
#   run_tests PACKAGE PATTERN [FLAG...]
run_tests() {
  local package=$1 pattern=$2 out status
  shift 2
  out=$(mktemp)
  cd "$VM/src/$package" || return 1
  "$VM/tests/$(echo "$package" | tr / -).test" -test.v -test.run "$pattern" -test.timeout 3h "$@" 2>&1 | tee "$out" | grep --line-buffered -vE '^=== '
  status=${PIPESTATUS[0]}
  echo "$package $(grep -c '^--- PASS' "$out") passed, $(grep -c '^--- FAIL' "$out") failed, $(grep -c '^--- SKIP' "$out") skipped" >> "$FIGURES"
  [ "$status" -eq 0 ] && grep -q '^--- PASS' "$out"
}
