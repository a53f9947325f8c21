package api

// The protocol between 'cvo uninstall' and operators on the operator's Lease.
const (
	// UninstallHolder is the holder of the Lease during an uninstall.
	UninstallHolder = "cvo-uninstall"
	// FencedFromAnnotation names the former holder of the Lease, which may still write. FencedUntilAnnotation is the latest time of such a
	// write. The named operator removes both annotations to confirm that it has no write pending and will not write before it holds the
	// Lease again.
	FencedFromAnnotation  = "cvo.cluster-version.github.io/fenced-from"
	FencedUntilAnnotation = "cvo.cluster-version.github.io/fenced-until"
)
