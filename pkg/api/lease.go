package api

// What 'cvo uninstall' and operators tell each other on the operator's Lease.
const (
	// UninstallHolder holds the Lease while an operator is removed.
	UninstallHolder = "cvo-uninstall"
	// FencedFromAnnotation names who held the Lease before and may still write, FencedUntilAnnotation says until when if it
	// does not say more. An operator that is named removes both as its word that nothing of it is under way, and that it
	// writes nothing more before it holds the Lease again.
	FencedFromAnnotation  = "cvo.cluster-version.github.io/fenced-from"
	FencedUntilAnnotation = "cvo.cluster-version.github.io/fenced-until"
)
