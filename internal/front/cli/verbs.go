package cli

import (
	_ "embed"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/runverbs"
)

// manual is the text about the verbs.
//
//go:embed verbs.md
var manual string

func (t *tree) root() *cobra.Command {
	verbs := t.ownVerbs()
	for _, more := range []console.Verbs{t.dispatchVerbs(), t.findVerbs(), t.authorityVerbs(), t.auditVerbs(), runverbs.Verbs(t.runConfig())} {
		maps.Copy(verbs, more)
	}
	root := console.ParseManual(manual, runverbs.Manual).Command(verbs)
	root.SetHelpCommandGroupID("Help:")
	root.SetCompletionCommandGroupID("Help:")
	markLocal(root)
	suggestFor(root)
	(&completion{t}).add(root)
	return root
}

// programFlags has the flags of all verbs.
func (t *tree) programFlags(v *console.Verb) {
	v.Version = t.Version
	t.Format, t.idle = "text", defaultIdle
	v.FlagBelow(&t.socket, "socket")
	v.FlagBelow(&t.server, "server")
	v.FlagBelow(&t.Format, "output")
	v.FlagBelow(&t.idle, "idle")
	v.FlagBelow(&t.NoPager, "no-pager")
	v.FlagBelow(&t.UTC, "utc")
	v.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains([]string{"text", "json", "jsonl", "name"}, t.Format) {
			return console.BadFormat(cmd, t.Format, "text, json, jsonl or name")
		}
		if t.idle <= 0 {
			return api.Errorf(api.CodeInvalid, "--idle %s: want a positive time", t.idle)
		}
		return nil
	}
}

// ownVerbs set the installation up, and start and stop the service.
func (t *tree) ownVerbs() console.Verbs {
	service, mcp, login := &serviceVerbs{t}, &mcpVerbs{t}, &loginVerbs{t}
	return console.Verbs{
		"":             t.programFlags,
		"init":         t.delegate(deployProgram, "init"),
		"key":          t.delegate(deployProgram, "key"),
		"operator":     t.delegate(deployProgram, "operator"),
		"catalog":      t.catalogCommand,
		"agent":        t.delegate(deployProgram, "agent"),
		"mcp tools":    mcp.toolsCommand,
		"mcp config":   mcp.configCommand,
		"web serve":    t.webServeCommand,
		"web open":     t.webOpenCommand,
		"up":           t.delegate(daemonProgram, "start"),
		"down":         service.downCommand,
		"status":       service.statusCommand,
		"doctor":       t.delegate(daemonProgram, "doctor"),
		"gc":           service.gcCommand,
		"login":        login.loginCommand,
		"logout":       login.logoutCommand,
		"session list": login.sessionListCommand,
		"session end":  login.sessionEndCommand,
		"version":      t.versionCommand,
		"man":          console.Man(t.writePages),
	}
}

func (t *tree) dispatchVerbs() console.Verbs {
	d := &dispatchVerbs{t}
	follow, call := &followVerbs{d}, &callVerbs{d}
	return console.Verbs{
		"dispatch run":         follow.runCommand,
		"dispatch answer":      follow.answerCommand,
		"dispatch cancel":      d.cancelCommand,
		"dispatch list":        d.listCommand,
		"dispatch show":        d.showCommand,
		"dispatch logs":        d.logsCommand,
		"dispatch network":     d.networkCommand,
		"dispatch tools":       call.toolsCommand,
		"dispatch transcript":  d.transcriptCommand,
		"dispatch patch":       d.patchCommand,
		"dispatch outputs":     d.outputsCommand,
		"dispatch attestation": d.attestationCommand,
		"dispatch pin":         d.pinCommand(true),
		"dispatch unpin":       d.pinCommand(false),
	}
}

func (t *tree) findVerbs() console.Verbs {
	f := &findVerbs{t}
	role := &roleVerbs{f}
	verbs := console.Verbs{
		"whoami":      f.whoamiCommand,
		"can":         f.canCommand,
		"role list":   f.listCommand(api.KindRole),
		"role show":   role.showCommand,
		"role matrix": role.matrixCommand,
		"tool list":   role.toolListCommand,
	}
	for _, kind := range []api.Kind{api.KindSubagent, api.KindModel, api.KindCapability, api.KindEnv, api.KindSource, api.KindTarget, api.KindGrant} {
		verbs[string(kind)+" list"], verbs[string(kind)+" show"] = f.listCommand(kind), f.showCommand(kind)
	}
	return verbs
}

// authorityVerbs are about who may do what. Operators sign most of them.
func (t *tree) authorityVerbs() console.Verbs {
	o := &operatorVerbs{t}
	principal, token, key, decision := &principalVerbs{o}, &tokenVerbs{o}, &keyVerbs{o}, &decisionVerbs{o}
	secret, approval, stop, anchor := &secretVerbs{o}, &approvalVerbs{operatorVerbs: o}, &stopVerbs{o}, &anchorVerbs{operatorVerbs: o}
	return console.Verbs{
		"principal list":      principal.listCommand,
		"principal show":      principal.showCommand,
		"principal add":       principal.addCommand,
		"principal remove":    principal.removeCommand,
		"ceiling set":         principal.ceilingSetCommand,
		"token create":        token.createCommand,
		"token list":          token.listCommand,
		"token rotate":        token.rotateCommand,
		"token revoke":        token.revokeCommand,
		"operators list":      key.listCommand,
		"operators add":       key.addCommand,
		"operators assign":    key.assignCommand,
		"operators rotate":    key.rotateCommand,
		"operators retire":    key.retireCommand,
		"operators threshold": key.thresholdCommand,

		"operators invite":      key.inviteCommand,
		"operators invitations": key.invitationsCommand,
		"operators admit":       key.admitCommand,

		"decision list":    decision.listCommand,
		"decision show":    decision.showCommand,
		"decision sign":    decision.signCommand,
		"secret list":      secret.listCommand,
		"secret check":     secret.checkCommand,
		"secret set":       secret.setCommand,
		"secret remove":    secret.removeCommand,
		"approval":         approval.noun,
		"approval list":    approval.listCommand,
		"approval show":    approval.showCommand,
		"approval watch":   approval.watchCommand,
		"approval approve": approval.vote(api.VerbApprove),
		"approval deny":    approval.vote(api.VerbDeny),
		"stop":             stop.stopCommand,
		"stop list":        stop.listCommand,
		"stop lift":        stop.liftCommand,
		"anchor":           anchor.noun,
		"anchor show":      anchor.showCommand,
		"anchor lost":      anchor.lostCommand,
	}
}

func (t *tree) auditVerbs() console.Verbs {
	a := &auditVerbs{t}
	return console.Verbs{
		"audit list":   a.listCommand,
		"audit show":   a.showCommand,
		"audit watch":  a.watchCommand,
		"audit export": a.exportCommand,
		"audit verify": a.verifyCommand,
		"audit trust":  a.trustCommand,
		"audit key":    a.keyCommand,
		"audit prove":  a.proveCommand,
		"audit tiles":  a.tilesCommand,
	}
}
