package e2e

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exempt lists the tests that do not run in mode system, with the reason. Each is about mode
// same-user itself.
func exempt() map[string]string {
	const (
		starts  = "a command starts the service itself"
		replies = "it reads what bailiwick up, down and doctor say of a service that commands start"
		byHand  = "it starts worker or service itself, under the account of the test"
		guide   = "it executes a text about mode same-user"
		own     = "the account of the world owns state, trust or service"
		values  = "values of secrets come from the service's account: env, exec, vault"
	)
	return map[string]string{
		"TestOneShotCommandsShareOneService": starts, "TestOneShotServiceShutsDownWhenIdle": starts, "TestOneShotServiceDoesNotWaitForAnAnswer": starts,
		"TestOneShotRestartsLoseNothing": starts, "TestOneShotServiceAdoptsWorkersOfAKilledOne": starts, "TestOneShotServiceOutlivesItsTerminal": starts,
		"TestOneShotCommandKilledDuringStartHarmsNothing": starts, "TestOneShotStartFailureIsOneError": starts, "TestLongStatePathWorks": starts,
		"TestSocketReplacesNoOtherFile": starts, "TestWithoutAHomeNothingIsWritten": starts, "TestOneShotStartsNoServiceForANamedSocket": starts,
		"TestOneShotServiceLastsAfterUp": starts, "TestOneShotServiceRunsBesideTheCommandWithAMinimalEnvironment": starts, "TestAOneShotServiceYieldsToALastingOne": starts,
		"TestUpAndDownSayWhatRuns": replies, "TestUpReplacesAOneShotServiceWithOtherSettings": replies, "TestUpSaysWhatIsNext": replies, "TestDoctorReportsTheService": replies,
		"TestUpNamesWhatIsInItsWay": replies, "TestTheServiceSpeaksASCII": replies, "TestTheServiceInheritsNoDescriptor": starts, "TestFourVerbsAdviseTheSameCommand": replies,
		"TestARefusedStateStartsByNoVerb": replies, "TestAStateWithoutItsConfigurationDoesNotStart": replies, "TestOrchestratorReplacesAPlainService": replies, "TestOrchestratorIsOptIn": byHand,
		"TestErrorsAreJSONOnRequest": replies, "TestWorkerVerifiesOnItsOwn": byHand, "TestWorkerResumesFromExactlyTheManifest": byHand, "TestWorkerWaitsForProceed": byHand,
		"TestWorkerReceivesExactlyTheManifestsNeeds": byHand, "TestAWorkerRunsUnderABlock": byHand, "TestACompromisedMCPServerRunsNothingUnsigned": byHand, "TestSecondServiceOnTheSameStateIsRefused": byHand, "TestStaleSocketIsReplaced": byHand,
		"TestTheServiceStartsAndCollectsOnAFullDisk": byHand, "TestFirstHour": guide, "TestDocumentedCommandsRun": guide, "TestDemoPrintsAtMost150Lines": guide,
		"TestDemoOfAgentsPrintsAtMost150Lines": guide, "TestExamplesRun": guide, "TestTheNightlyExampleUpdatesWithinItsBudget": guide, "TestReadmeTourIsShort": guide,
		"TestTrustOfAnotherAccountIsRefused": own, "TestOneAccountHasEverythingInSameUser": own, "TestUnknownConfigurationRefusesTheStart": own, "TestOtherAccountsSeeAndCancelNothing": own,
		"TestSocketAcceptsNamesNotAuthority": own, "TestServiceLogIsAlwaysJSON": own, "TestTheMetricsSocketIsForTheServicesAccount": own, "TestServiceRefusesKeysThatDoNotMatch": own,
		"TestTheReasonForALostAnchorIsRead": "one command signs it beside the state; on a machine people sign files: TestARestoredStateOfATeamStartsOnceItsLossIsSigned",
		"TestSecretIsSetCheckedAndRemoved":  values, "TestAServiceKilledWhileASecretIsReadStartsTheWorkerLater": values,
	}
}

// runTests runs the tests of a mode.
func runTests(m *testing.M) int {
	if !systemMode {
		return m.Run()
	}
	skip := "^(" + strings.Join(slices.Sorted(maps.Keys(exempt())), "|") + ")$"
	if f := flag.Lookup("test.skip"); f.Value.String() != "" {
		skip += "|" + f.Value.String()
	}
	if err := flag.Set("test.skip", skip); err != nil {
		panic(err)
	}
	status := m.Run()
	fmt.Printf("mode system: %d machines; %d tests are about mode same-user\n", machines.Load(), len(exempt()))
	return status
}

// Every exemption names a test that exists and says why.
func TestEveryExemptionIsOfATest(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = true
			}
		}
	}
	if len(tests) < 100 || !tests[t.Name()] || tests["Test"] { // control
		t.Fatalf("%d tests were found", len(tests))
	}
	for name, reason := range exempt() {
		if !tests[name] || reason == "" {
			t.Errorf("%s (%q): there is no such test, or no reason", name, reason)
		}
	}
}
