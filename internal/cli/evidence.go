package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

func (t *tree) auditExportCommand() *cobra.Command {
	var out string
	var blobs, dispatch bool
	var checkpoints []string
	cmd := &cobra.Command{
		Use: "export ID -o FILE", Short: "Write the evidence about a run or a dispatch that is over, for an auditor", Args: cobra.ExactArgs(1),
		Long: `Write the evidence about a run that is settled, or about a dispatch that has ended:
one file from which bailiwick-verify recomputes what ran, who decided it and
whether anything is missing. It holds digests of what was taken in and brought
back; the content itself is in it only with --with-blobs.`,
		Example: `  bailiwick audit export nightly-17 -o nightly-17.evidence
  bailiwick-verify nightly-17.evidence --trust trust.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.EvidenceRequest{Blobs: blobs}
			for _, name := range checkpoints {
				b, err := newestCheckpoint(name)
				if err != nil {
					return api.Errorf(api.CodeInvalid, "--checkpoint %s: %w", name, err)
				}
				req.Checkpoints = append(req.Checkpoints, b)
			}
			if out == "" {
				return api.Errorf(api.CodeInvalid, "name the file to write: -o FILE")
			}
			c := t.conn()
			defer c.Close()
			fetch := func(req api.EvidenceRequest) error {
				return writeFile(out, func(w io.Writer) error { return c.Operator().Evidence(cmd.Context(), req, w) })
			}
			var p parser
			if !dispatch {
				run := req
				run.Run = p.run(args[0])
				if p.err == nil {
					if p.err = fetch(run); p.err == nil || api.CodeOf(p.err) != api.CodeNotFound {
						return p.err
					}
				}
			}
			var q parser
			req.Dispatch = q.dispatch(args[0])
			if q.err != nil {
				return errors.Join(p.err, q.err)
			}
			err := fetch(req)
			if p.err != nil && api.CodeOf(err) == api.CodeNotFound {
				return api.Errorf(api.CodeNotFound, "the log has no run and no dispatch %s", args[0]).WithHint("see: bailiwick run list, bailiwick dispatch list")
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the file to write; it must not be there")
	cmd.Flags().BoolVar(&blobs, "with-blobs", false, "with inputs, patches, outputs and logs themselves")
	cmd.Flags().BoolVar(&dispatch, "dispatch", false, "ID is that of a dispatch, also where there is a run of that id")
	cmd.Flags().StringArrayVar(&checkpoints, "checkpoint", nil, "a file with a signed checkpoint that the auditor has, or several as anchors have them, of which the log is to be proved to go on the newest; may be said several times")
	return cmd
}

// newestCheckpoint reads a signed checkpoint, or the file of a file anchor, of
// which each line has one as a JSON string.
func newestCheckpoint(name string) (newest []byte, err error) {
	b, err := os.ReadFile(name) //nolint:gosec // G304: the user's own file, by the user's own name
	if err != nil {
		return nil, err
	}
	if _, err = note.Peek(b); err == nil {
		return b, nil
	}
	size := uint64(0)
	for line := range bytes.Lines(b) {
		var signed string
		if json.Unmarshal(line, &signed) != nil {
			continue
		}
		if c, err := note.Peek([]byte(signed)); err == nil && c.Size >= size {
			newest, size = []byte(signed), c.Size
		}
	}
	if newest == nil {
		return nil, err
	}
	return newest, nil
}

func (t *tree) auditVerifyCommand() *cobra.Command {
	var log bool
	var trust, require string
	var anchors []string
	cmd := &cobra.Command{
		Use: "verify [FILE]", Short: "Verify evidence in a file, or the whole log of the service", Args: cobra.MaximumNArgs(1),
		Long: `Verify evidence in a file, by bailiwick-verify, which works without a service and
without a network; or with --log have the service read every entry of its log
again, compute the root that it signed, and follow the chains of runs.`,
		Example: `  bailiwick audit verify nightly-17.evidence --trust trust.json
  bailiwick audit verify --log`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if log == (len(args) == 1) {
				return api.Errorf(api.CodeInvalid, "name a file, or --log")
			}
			if log {
				return t.verifyLog(cmd)
			}
			if trust == "" {
				return api.Errorf(api.CodeInvalid, "--trust FILE: whose signatures count").WithHint("for a look at your own evidence: bailiwick audit trust > trust.json")
			}
			path := filepath.Join(t.Beside, "bailiwick-verify")
			if _, err := os.Stat(path); err != nil {
				return api.Errorf(api.CodeUnavailable, "%w", err).WithHint("the programs of one installation lie in one folder")
			}
			rest := []string{"--trust", trust, "--require", require}
			if t.output == "json" {
				rest = append(rest, "-o", "json")
			}
			for _, a := range anchors {
				rest = append(rest, "--anchor", a)
			}
			return t.elsewhere("verify", "", "bailiwick-verify", args[0]).RunE(cmd, rest)
		},
	}
	cmd.Flags().BoolVar(&log, "log", false, "the whole log of the service that is there")
	cmd.Flags().StringVar(&trust, "trust", "", "whose signatures count")
	cmd.Flags().StringVar(&require, "require", "none", "the least that may be said of the log")
	cmd.Flags().StringArrayVar(&anchors, "anchor", nil, "a signed checkpoint that you have otherwise than by the evidence")
	return cmd
}

func (t *tree) verifyLog(cmd *cobra.Command) error {
	c := t.conn()
	defer c.Close()
	check, err := c.Operator().CheckLog(cmd.Context())
	if err != nil {
		return err
	}
	if t.output != "text" {
		if err := t.printJSON(check); err != nil {
			return err
		}
	} else if check.Wrong == "" {
		fmt.Fprintf(t.Stdout, "%d entries are what was signed; %d follow what they say they follow, also those that came since\n", check.Entries, check.Chained)
	}
	if check.Wrong != "" {
		return api.Errorf(api.CodeIntegrity, "the log is not what it was: %s", check.Wrong)
	}
	return nil
}
