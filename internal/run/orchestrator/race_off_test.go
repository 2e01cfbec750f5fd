//go:build !race

package orchestrator_test

const size = 1
