package manifest

// VersionPlaceholder stands for the release's version in the manifests of its components until the release is assembled. Followed by "-"
// and a key, it stands for the version of software in a component, such as 0.0.1-snapshot-kubernetes.
const VersionPlaceholder = "0.0.1-snapshot"
