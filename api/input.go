package api

// The files that the worker itself puts below inputs/ of a workspace.
const (
	InputFile  = "input.json"  // the input of the dispatch
	SystemFile = "system.md"   // the system prompt of its subagent
	PromptFile = "prompt.md"   // the rendered prompt
	ResumeFile = "resume.json" // the answer that an attempt resumes with
)

// ReservedInputs lists the names below inputs/ that a task's needs may not use.
func ReservedInputs() []Name {
	return []Name{InputFile, SystemFile, PromptFile, ResumeFile}
}
