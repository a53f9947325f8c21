package api

// UninstallHolder is the holder of the operator's Lease during an uninstall.
const UninstallHolder = "cvo-uninstall"

// InstallManager is the field manager of 'cvo install' and 'cvo uninstall'.
const InstallManager = "cvo-install"

// Annotations of the operator's Lease, by which 'cvo uninstall' and operators agree on the last write.
const (
	// FencedFromAnnotation names the former holder of the Lease, which may still write. This operator removes both annotations to confirm that
	// it has no write pending and will not write before it holds the Lease again. A former leader restarts first.
	FencedFromAnnotation = "cvo.cluster-version.github.io/fenced-from"
	// FencedUntilAnnotation is the latest time of such a write.
	FencedUntilAnnotation = "cvo.cluster-version.github.io/fenced-until"
)
