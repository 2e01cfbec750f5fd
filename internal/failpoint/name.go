package failpoint

// Name is a moment. The set is closed: a test holds it against the calls.
type Name string

// The moments of the service's own life.
const (
	ServiceOpened    Name = "service.opened"    // everything is open, nobody can call yet
	ServiceListening Name = "service.listening" // the socket is there
	ServiceStopping  Name = "service.stopping"  // asked to end, nothing closed yet
	ServiceStopped   Name = "service.stopped"   // the entry that says so is durable
	ServiceClosed    Name = "service.closed"    // the state is closed, the socket still there
)

// The moments of what a restarted service takes up.
const (
	RecoverBegin    Name = "recover.begin"
	RecoverOne      Name = "recover.one"      // before a dispatch that has not ended is looked at
	RecoverAttached Name = "recover.attached" // its worker lives and is connected
	RecoverFound    Name = "recover.found"    // the entry of what was found is durable
	RecoverRefire   Name = "recover.refire"   // it never began, and is begun now
	RecoverSweep    Name = "recover.sweep"    // before directories without an open dispatch are removed
	RecoverEnd      Name = "recover.end"
)

// The moments of an admission and of a start, in the service.
const (
	AcceptCommit      Name = "accept.commit"      // before the entry and the row are committed
	AcceptCommitted   Name = "accept.committed"   // after, and before anything else
	ExecutorDir       Name = "executor.dir"       // before the directory of the attempt is made
	ExecutorLocked    Name = "executor.locked"    // it is made and locked
	ExecutorFile      Name = "executor.file"      // a file is in it
	ExecutorListening Name = "executor.listening" // the socket is in it
	ExecutorStarted   Name = "executor.started"   // the worker's process is there
	ExecutorConnected Name = "executor.connected" // the service is connected to it
	StartCommit       Name = "start.commit"       // before the worker's key is bound
	StartCommitted    Name = "start.committed"
	StartProceed      Name = "start.proceed" // the worker has been told
)

// The moments of a worker, in their order.
const (
	WorkerBegin        Name = "worker.begin"
	WorkerLocked       Name = "worker.locked"
	WorkerReady        Name = "worker.ready"
	WorkerProceed      Name = "worker.proceed" // it has heard that it may
	WorkerWorkspace    Name = "worker.workspace"
	WorkerJail         Name = "worker.jail" // before a jail is started
	WorkerJailed       Name = "worker.jailed"
	WorkerAgent        Name = "worker.agent" // just before the agent starts
	WorkerAgentEnded   Name = "worker.agent_ended"
	WorkerCapture      Name = "worker.capture"
	WorkerKeep         Name = "worker.keep" // an artifact is written and not yet in its place
	WorkerKept         Name = "worker.kept"
	WorkerCaptured     Name = "worker.captured"
	WorkerCheck        Name = "worker.check" // before the verify command runs
	WorkerSeal         Name = "worker.seal"
	WorkerResultFile   Name = "worker.result_written" // and not yet in its place
	WorkerResultPlaced Name = "worker.result_placed"  // and its directory not yet synced
	WorkerSealed       Name = "worker.sealed"
	WorkerEnd          Name = "worker.end"
)

// The moments of a jail's life, on the side of its owner.
const (
	JailGroup    Name = "jail.group"    // before a control group is made
	JailGrouped  Name = "jail.grouped"  // it is made and not yet locked
	JailLaunched Name = "jail.launched" // its first process is there
	JailClose    Name = "jail.close"
	JailClosed   Name = "jail.closed" // nothing runs in it, its control groups are still there
)

// The moments of the end of an attempt, in the service.
const (
	CollectBegin  Name = "collect.begin"  // the worker is gone
	CollectBlob   Name = "collect.blob"   // one of its contents is stored
	CollectResult Name = "collect.result" // the signed result is stored
	EndCommit     Name = "end.commit"     // before the end is committed
	EndCommitted  Name = "end.committed"
	EndRemoved    Name = "end.removed" // the directory of the attempt is gone
)

// The moments of a statement.
const (
	AttestCommit    Name = "attest.commit" // it is signed and stored, and not yet committed
	AttestCommitted Name = "attest.committed"
)

// The moments of another service key.
const (
	RotateKey    Name = "rotate.key"    // the next key is made, and signed by the one in force
	RotateLogged Name = "rotate.logged" // the entry that says so is durable: the next key is the one
	RotateListed Name = "rotate.listed" // it is in the list of keys
	RotateTaken  Name = "rotate.taken"  // it is in the place of the one before
)

// The moments of a cancel and of an answer.
const (
	CancelCommit    Name = "cancel.commit"
	CancelCommitted Name = "cancel.committed"
	CancelDelivered Name = "cancel.delivered"
	AnswerCommit    Name = "answer.commit"
	AnswerCommitted Name = "answer.committed"
	ExpireCommit    Name = "expire.commit" // before a dispatch that waited in vain is ended
)

// The moments of an emergency stop.
const (
	StopCommit    Name = "stop.commit"    // before the stop, and the marks of what it holds, are committed
	StopCommitted Name = "stop.committed" // after, and nothing of it has been told to end
	StopDelivered Name = "stop.delivered" // one of them has
)

// The moments of a run.
const (
	RunSubmitCommit    Name = "run.submit_commit" // before the run is committed
	RunSubmitCommitted Name = "run.submit_committed"
	RunSteerCommit     Name = "run.steer_commit" // before what somebody does to a run or a queue is committed
	RunSteerCommitted  Name = "run.steer_committed"
	RunCommit          Name = "run.commit" // before transitions are committed
	RunCommitted       Name = "run.committed"
	RunFire            Name = "run.fire" // before a task's dispatch is asked for
	RunFired           Name = "run.fired"
	RunResume          Name = "run.resume" // before one that asked something goes on
	RunResumed         Name = "run.resumed"
	RunCancel          Name = "run.cancel" // before one is told to end
	RunCancelled       Name = "run.cancelled"
	RunRecover         Name = "run.recover" // what is stored is read, nothing follows from it yet
)

// The moments of an operator's decision.
const (
	DecideCommit    Name = "decide.commit"    // before a record and its entry are committed
	DecideCommitted Name = "decide.committed" // after, and nobody goes by it yet
)

// The moments of a removal of what need not be kept.
const (
	RetainCommit    Name = "retain.commit"    // before the marks and their entry are committed
	RetainCommitted Name = "retain.committed" // after, and no file is removed yet
	RetainBlob      Name = "retain.blob"      // one of them is
)

// The moments of the log's tree.
const (
	LogFeed      Name = "log.feed"      // before entries are handed over
	LogFed       Name = "log.fed"       // they are in the tree, and no checkpoint covers them
	LogSigned    Name = "log.signed"    // a checkpoint is signed and not yet in its place
	LogPublished Name = "log.published" // it is
	LogWipe      Name = "log.wipe"      // before a damaged tree is removed
	LogWiped     Name = "log.wiped"     // after, and nothing of the next is there
)

// The moments of a checkpoint that is given to an anchor.
const (
	AnchorPut   Name = "anchor.put"   // before it is
	AnchorGiven Name = "anchor.given" // the anchor has it, and its receipt is not kept
	AnchorKept  Name = "anchor.kept"  // it is
)

// The moments of what everything stands on.
const (
	BlobWritten    Name = "blob.written" // and not yet in its place
	BlobPlaced     Name = "blob.placed"  // and its directory not yet synced
	StoreCommit    Name = "store.commit" // before a transaction is committed
	StoreCommitted Name = "store.committed"
)

// Names lists them all.
func Names() []Name {
	return []Name{
		ServiceOpened, ServiceListening, ServiceStopping, ServiceStopped, ServiceClosed,
		RecoverBegin, RecoverOne, RecoverAttached, RecoverFound, RecoverRefire, RecoverSweep, RecoverEnd,
		AcceptCommit, AcceptCommitted, ExecutorDir, ExecutorLocked, ExecutorFile, ExecutorListening, ExecutorStarted, ExecutorConnected,
		StartCommit, StartCommitted, StartProceed,
		WorkerBegin, WorkerLocked, WorkerReady, WorkerProceed, WorkerWorkspace, WorkerJail, WorkerJailed, WorkerAgent, WorkerAgentEnded,
		WorkerCapture, WorkerKeep, WorkerKept, WorkerCaptured, WorkerCheck, WorkerSeal, WorkerResultFile, WorkerResultPlaced,
		WorkerSealed, WorkerEnd,
		JailGroup, JailGrouped, JailLaunched, JailClose, JailClosed,
		CollectBegin, CollectBlob, CollectResult, EndCommit, EndCommitted, EndRemoved, AttestCommit, AttestCommitted,
		RotateKey, RotateLogged, RotateListed, RotateTaken,
		CancelCommit, CancelCommitted, CancelDelivered, AnswerCommit, AnswerCommitted, ExpireCommit,
		RunSubmitCommit, RunSubmitCommitted, RunSteerCommit, RunSteerCommitted, RunCommit, RunCommitted, RunFire, RunFired, RunResume, RunResumed,
		RunCancel, RunCancelled, RunRecover,
		StopCommit, StopCommitted, StopDelivered, DecideCommit, DecideCommitted,
		RetainCommit, RetainCommitted, RetainBlob,
		LogFeed, LogFed, LogSigned, LogPublished, LogWipe, LogWiped,
		AnchorPut, AnchorGiven, AnchorKept,
		BlobWritten, BlobPlaced, StoreCommit, StoreCommitted,
	}
}
