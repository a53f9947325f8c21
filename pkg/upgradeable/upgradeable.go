// Package upgradeable tells what keeps a cluster from updates to another minor or major version. It takes what was read
// of the cluster and returns the obstacles, each from a small pure file: ClusterOperators that object, gates that an
// administrator has to acknowledge, overrides, deletions under way, an update in progress. Condition Upgradeable is made
// of them, and precondition ClusterVersionUpgradeable of that.
package upgradeable

// Obstacle keeps a cluster from an update to another minor or major version.
type Obstacle struct {
	// Source names the check that found it.
	Source string
	// Reason is a CamelCase word, Message a sentence.
	Reason, Message string
}
