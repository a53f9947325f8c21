package manifest

// VersionPlaceholder stands for the version of a release in the manifests of its components until the release is
// assembled. With "-" and a key behind it, it stands for the version of something inside a component, such as
// 0.0.1-snapshot-kubernetes.
const VersionPlaceholder = "0.0.1-snapshot"
