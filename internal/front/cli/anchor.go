package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// anchorNoun is about an anchor for which the service does not start, so
// bailiwickd carries it out without a service.
func (t *operatorVerbs) anchorNoun() *cobra.Command {
	var config string
	noun := console.Noun("anchor", "Compare an anchor with the log, or name it as lost, while no service runs",
		console.Group{Commands: []*cobra.Command{t.anchorShowCommand(&config), t.anchorLostCommand(&config)}})
	noun.PersistentFlags().StringVar(&config, "config", "", "configuration of the service (default $XDG_CONFIG_HOME/bailiwick/service.yaml, if it exists)")
	return noun
}

func (t *operatorVerbs) anchorShowCommand(config *string) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Compare all that an anchor holds with the log, as the start of the service does", Args: cobra.ExactArgs(1),
		Example: console.Examples("bailiwick anchor show disk", "bailiwick anchor show disk -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.execute(cmd.Context(), daemonProgram, anchorArgs(*config, t.Format, "show", args[0]), t.Stdin, t.File())
		},
	}
}

func anchorArgs(config, format, verb string, args ...string) []string {
	all := append([]string{"anchor", verb, "-o", format}, args...)
	if config != "" {
		all = append(all, "--config", config)
	}
	return all
}

func (t *operatorVerbs) anchorLostCommand(config *string) *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: "lost NAME", Short: "Start although an anchor refuses it; signed with the operator's key", Args: cobra.ExactArgs(1),
		Long: `Let the service start although an anchor holds more of the log than the state, another log, or
what the service did not write. The operator signs a decision that names the anchor and all
that is wrong with it. It is in the log before it has effect, and holds for exactly that: if
something else is found later, the service refuses again. The anchor gets no more checkpoints.
Keep what it holds as evidence, and give the log another anchor. The service must be stopped.`,
		Example: console.Examples("bailiwick anchor lost disk", "bailiwick anchor lost disk --reason 'the disk failed on Monday'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := api.ParseAnchorName(args[0])
			if err != nil {
				return api.Errorf(api.CodeInvalid, "%w", err)
			}
			return t.nameLost(cmd.Context(), f, *config, name)
		},
	}
	f.addKeys(cmd)
	return cmd
}

func (t *operatorVerbs) nameLost(ctx context.Context, f decideFlags, config, name string) error {
	var finding api.AnchorFinding
	if err := t.daemonAnswers(ctx, anchorArgs(config, "json", "show", name), nil, &finding); err != nil {
		return err
	}
	if finding.Found == "" {
		return api.Errorf(api.CodeConflict, "anchor %q agrees with the log: nothing is lost", name).WithHint("run: bailiwick up")
	}
	fmt.Fprintln(t.Stderr, console.Plain(finding.Message))
	envelope, err := t.signed(ctx, f, finding.Head, api.OperatorRecord{Verb: api.VerbAnchorLost, Anchor: name, Found: finding.Found})
	if err != nil {
		return err
	}
	var receipt api.OperatorReceipt
	if err := t.daemonAnswers(ctx, anchorArgs(config, "json", "record"), bytes.NewReader(envelope), &receipt); err != nil {
		return err
	}
	return t.printReceipt(receipt, fmt.Sprintf("anchor %s is named as lost and gets no more checkpoints; give the log another anchor, with another name and place", name))
}

// daemonAnswers runs bailiwickd, reads its answer and returns its error, both in
// JSON.
func (t *operatorVerbs) daemonAnswers(ctx context.Context, args []string, stdin io.Reader, answer any) error {
	var out, said bytes.Buffer
	err := t.executeTo(ctx, daemonProgram, args, stdin, &out, &said)
	if _, failed := errors.AsType[console.Exit](err); failed {
		var refused struct{ Error *api.Error }
		last := said.Bytes()[bytes.LastIndexByte(bytes.TrimSpace(said.Bytes()), '\n')+1:]
		if json.Unmarshal(last, &refused) == nil && refused.Error != nil {
			return refused.Error
		}
		fmt.Fprint(t.Stderr, console.Plain(said.String()))
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("%s: %w", daemonProgram, err)
	}
	return nil
}
