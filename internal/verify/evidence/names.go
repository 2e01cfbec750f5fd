package evidence

import "github.com/bailiwick-dev/bailiwick/internal/verify/report"

// Names of package report, until the tests use that package.
type (
	Status       = report.Status
	RowName      = report.RowName
	Row          = report.Row
	Claim        = report.Claim
	Report       = report.Report
	Ran          = report.Ran
	RanContent   = report.RanContent
	RanRun       = report.RanRun
	RanWork      = report.RanWork
	Decided      = report.Decided
	Work         = report.Work
	PeriodReport = report.PeriodReport
	Finding      = report.Finding
)

const (
	Pass                  = report.Pass
	Fail                  = report.Fail
	NA                    = report.NA
	RowInclusion          = report.RowInclusion
	RowSignature          = report.RowSignature
	RowConsistency        = report.RowConsistency
	RowAnchor             = report.RowAnchor
	RowCatalog            = report.RowCatalog
	RowManifest           = report.RowManifest
	RowResult             = report.RowResult
	RowProvenance         = report.RowProvenance
	RowCompleteness       = report.RowCompleteness
	RowAuthorisation      = report.RowAuthorisation
	RowTools              = report.RowTools
	RowTime               = report.RowTime
	ClaimNone             = report.ClaimNone
	ClaimTamperDetecting  = report.ClaimTamperDetecting
	ClaimTamperEvident    = report.ClaimTamperEvident
	TimeAsserted          = report.TimeAsserted
	TimeAttested          = report.TimeAttested
	AuthorisationNone     = report.AuthorisationNone
	AuthorisationSameUser = report.AuthorisationSameUser
	UseNewer              = report.UseNewer
)

var RowNames = report.RowNames
