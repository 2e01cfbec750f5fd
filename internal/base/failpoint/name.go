package failpoint

// Name names a point. A test compares the list with the calls of Hit.
type Name string

// Points of the service.
const (
	ServiceOpened    Name = "service.opened"    // everything is open, not yet listening
	ServiceListening Name = "service.listening" // the socket exists
	ServiceStopping  Name = "service.stopping"  // shutdown requested, nothing closed yet
	ServiceStopped   Name = "service.stopped"   // its entry is durable
	ServiceClosed    Name = "service.closed"    // the state is closed, the socket still exists
)

// Points of recovery after a restart.
const (
	RecoverBegin    Name = "recover.begin"
	RecoverOne      Name = "recover.one"      // before an open dispatch is recovered
	RecoverAttached Name = "recover.attached" // its worker runs and is connected
	RecoverFound    Name = "recover.found"    // the recovery entry is durable
	RecoverRefire   Name = "recover.refire"   // it never started, and starts now
	RecoverSweep    Name = "recover.sweep"    // before directories without an open dispatch are removed
	RecoverEnd      Name = "recover.end"
)

// Points of accepting and starting a dispatch, in the service.
const (
	AcceptCommit      Name = "accept.commit"      // before the entry and the row are committed
	AcceptCommitted   Name = "accept.committed"   // directly after
	ExecutorDir       Name = "executor.dir"       // before the directory of the attempt is created
	ExecutorFile      Name = "executor.file"      // a file is in it
	ExecutorListening Name = "executor.listening" // the socket is in it
	LaunchClaimed     Name = "launch.claimed"     // the attempt is about to start, which becomes durable meanwhile
	LaunchStarted     Name = "launch.started"     // the worker's process runs without its secrets, and only the launcher knows
	LaunchReady       Name = "launch.ready"       // it has them
	ExecutorStarted   Name = "executor.started"   // the worker's process runs
	ExecutorConnected Name = "executor.connected" // the service is connected to it
	StartCommit       Name = "start.commit"       // before the worker's key is bound
	StartCommitted    Name = "start.committed"
	StartProceed      Name = "start.proceed" // "proceed" was sent to the worker
)

// Points of the reuse of an earlier result.
const (
	ReuseCommit    Name = "reuse.commit" // before the entry and the row are committed
	ReuseCommitted Name = "reuse.committed"
)

// Points of a worker, in order.
const (
	WorkerBegin        Name = "worker.begin"
	WorkerReady        Name = "worker.ready"
	WorkerProceed      Name = "worker.proceed" // it received "proceed"
	WorkerBegan        Name = "worker.began"   // it is durable that it begins
	WorkerWorkspace    Name = "worker.workspace"
	WorkerJail         Name = "worker.jail" // before a jail is started
	WorkerJailed       Name = "worker.jailed"
	WorkerAgent        Name = "worker.agent" // just before the agent starts
	WorkerAgentEnded   Name = "worker.agent_ended"
	WorkerCapture      Name = "worker.capture"
	WorkerKeep         Name = "worker.keep" // an artifact is written, not yet renamed
	WorkerKept         Name = "worker.kept"
	WorkerCaptured     Name = "worker.captured"
	WorkerCheck        Name = "worker.check" // before the verify command runs
	WorkerSeal         Name = "worker.seal"
	WorkerResultFile   Name = "worker.result_written" // not yet renamed
	WorkerResultPlaced Name = "worker.result_placed"  // its directory not yet synced
	WorkerSealed       Name = "worker.sealed"
	WorkerEnd          Name = "worker.end"
)

// Points of a jail, in its owner.
const (
	JailGroup    Name = "jail.group"    // before a control group is created
	JailGrouped  Name = "jail.grouped"  // it is created, not yet locked
	JailLaunched Name = "jail.launched" // its first process runs
	JailClose    Name = "jail.close"
	JailClosed   Name = "jail.closed" // nothing runs in it, its control groups still exist
)

// Points of the end of an attempt, in the service.
const (
	CollectBegin  Name = "collect.begin"  // the worker has exited
	CollectBlob   Name = "collect.blob"   // one artifact is stored
	CollectResult Name = "collect.result" // the signed result is stored
	CollectCalls  Name = "collect.calls"  // the record of its tool calls is stored, not yet named
	EndCommit     Name = "end.commit"     // before the end is committed
	EndCommitted  Name = "end.committed"
	EndRemoved    Name = "end.removed" // the directory of the attempt is removed
)

// Points of refused requests, in the service.
const (
	RefuseCommit    Name = "refuse.commit" // they are reported, not yet logged
	RefuseCommitted Name = "refuse.committed"
)

// Points of a call of a tool, in the service.
const (
	ToolAsk       Name = "tool.ask" // before an approval is requested
	ToolAsked     Name = "tool.asked"
	TaskAsk       Name = "task.ask"       // before people are asked about a task
	TaskVoted     Name = "task.voted"     // after it is known how its request stands
	ToolCommit    Name = "tool.commit"    // before a call, its use of an approval and its row are committed
	ToolCommitted Name = "tool.committed" // after, before the call is made
	ToolAnswered  Name = "tool.answered"  // the server has answered
	ToolReturn    Name = "tool.return"    // before what it returned is committed
	ToolReturned  Name = "tool.returned"  // after, before the agent gets it
)

// Points of an attestation.
const (
	AttestCommit    Name = "attest.commit" // it is signed and stored, not yet committed
	AttestCommitted Name = "attest.committed"
)

// Points of a key rotation.
const (
	RotateKey    Name = "rotate.key"    // the next key exists, signed by the current one
	RotateLogged Name = "rotate.logged" // its entry is durable: the next key is in force
	RotateListed Name = "rotate.listed" // it is in service-keys.json
	RotateTaken  Name = "rotate.taken"  // it replaced the old key
)

// Points of a cancel, an answer and an expiry.
const (
	CancelCommit    Name = "cancel.commit"
	CancelCommitted Name = "cancel.committed"
	CancelDelivered Name = "cancel.delivered"
	AnswerCommit    Name = "answer.commit"
	AnswerCommitted Name = "answer.committed"
	ExpireCommit    Name = "expire.commit" // before an unanswered dispatch is ended
)

// Points of an emergency stop.
const (
	StopCommit    Name = "stop.commit"    // before the stop and its cancellations are committed
	StopCommitted Name = "stop.committed" // after, none delivered
	StopDelivered Name = "stop.delivered" // one is delivered
)

// Points of a run.
const (
	RunSubmitCommit    Name = "run.submit_commit" // before the run is committed
	RunSubmitCommitted Name = "run.submit_committed"
	RunSteerCommit     Name = "run.steer_commit" // before an operation on a run or a queue is committed
	RunSteerCommitted  Name = "run.steer_committed"
	RunCommit          Name = "run.commit" // before transitions are committed
	RunCommitted       Name = "run.committed"
	RunGrowCommit      Name = "run.grow_commit" // before the tasks of a growth are committed
	RunGrowCommitted   Name = "run.grow_committed"
	RunRequest         Name = "run.request" // before a task's dispatch is requested
	RunRequested       Name = "run.requested"
	RunResume          Name = "run.resume" // before an answered dispatch is resumed
	RunResumed         Name = "run.resumed"
	RunCancel          Name = "run.cancel" // before a dispatch is cancelled
	RunCancelled       Name = "run.cancelled"
	RunRecover         Name = "run.recover" // the stored run is read, not yet acted upon
)

// Points of a schedule.
const (
	ScheduleCommit    Name = "schedule.commit" // before what becomes of slots is committed
	ScheduleCommitted Name = "schedule.committed"
	ScheduleSubmit    Name = "schedule.submit" // before the run of a slot is submitted
	ScheduleSubmitted Name = "schedule.submitted"
)

// Points of an operator's decision.
const (
	DecideCommit    Name = "decide.commit"    // before a record and its entry are committed
	DecideCommitted Name = "decide.committed" // after, not yet in force
)

// Points of a retention collection.
const (
	RetainCommit    Name = "retain.commit"    // before the marks and their entry are committed
	RetainCommitted Name = "retain.committed" // after, no file removed yet
	RetainBlob      Name = "retain.blob"      // one is removed
)

// Points of the log's tree.
const (
	LogFeed      Name = "log.feed"      // before entries are appended
	LogFed       Name = "log.fed"       // they are in the tree, not yet in a checkpoint
	LogSigned    Name = "log.signed"    // a checkpoint is signed, not yet published
	LogPublished Name = "log.published" // it is published
	LogWipe      Name = "log.wipe"      // before a damaged tree is removed
	LogWiped     Name = "log.wiped"     // after, before a new one is begun
)

// Points of anchoring a checkpoint.
const (
	AnchorPut   Name = "anchor.put"   // before it is sent
	AnchorGiven Name = "anchor.given" // the anchor has it, its receipt is not stored
	AnchorKept  Name = "anchor.kept"  // the receipt is stored
)

// Points of the stores.
const (
	BlobWritten    Name = "blob.written" // not yet renamed
	BlobPlaced     Name = "blob.placed"  // its directory not yet synced
	StoreCommit    Name = "store.commit" // before a transaction is committed
	StoreCommitted Name = "store.committed"
)

// Names returns all names.
func Names() []Name {
	return []Name{
		ServiceOpened, ServiceListening, ServiceStopping, ServiceStopped, ServiceClosed,
		RecoverBegin, RecoverOne, RecoverAttached, RecoverFound, RecoverRefire, RecoverSweep, RecoverEnd,
		AcceptCommit, AcceptCommitted, ReuseCommit, ReuseCommitted, ExecutorDir, ExecutorFile, ExecutorListening, LaunchClaimed, LaunchStarted, LaunchReady, ExecutorStarted, ExecutorConnected,
		StartCommit, StartCommitted, StartProceed,
		WorkerBegin, WorkerReady, WorkerProceed, WorkerBegan, WorkerWorkspace, WorkerJail, WorkerJailed, WorkerAgent, WorkerAgentEnded,
		WorkerCapture, WorkerKeep, WorkerKept, WorkerCaptured, WorkerCheck, WorkerSeal, WorkerResultFile, WorkerResultPlaced,
		WorkerSealed, WorkerEnd,
		JailGroup, JailGrouped, JailLaunched, JailClose, JailClosed,
		CollectBegin, CollectBlob, CollectCalls, CollectResult, EndCommit, EndCommitted, EndRemoved, RefuseCommit, RefuseCommitted,
		ToolAsk, ToolAsked, TaskAsk, TaskVoted, ToolCommit, ToolCommitted, ToolAnswered, ToolReturn, ToolReturned, AttestCommit, AttestCommitted,
		RotateKey, RotateLogged, RotateListed, RotateTaken,
		CancelCommit, CancelCommitted, CancelDelivered, AnswerCommit, AnswerCommitted, ExpireCommit,
		RunSubmitCommit, RunSubmitCommitted, RunSteerCommit, RunSteerCommitted, RunCommit, RunCommitted, RunGrowCommit, RunGrowCommitted, RunRequest, RunRequested, RunResume, RunResumed,
		RunCancel, RunCancelled, RunRecover,
		ScheduleCommit, ScheduleCommitted, ScheduleSubmit, ScheduleSubmitted,
		StopCommit, StopCommitted, StopDelivered, DecideCommit, DecideCommitted,
		RetainCommit, RetainCommitted, RetainBlob,
		LogFeed, LogFed, LogSigned, LogPublished, LogWipe, LogWiped,
		AnchorPut, AnchorGiven, AnchorKept,
		BlobWritten, BlobPlaced, StoreCommit, StoreCommitted,
	}
}
