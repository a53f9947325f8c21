// Package estimate tells how long a rollout will take from here, by how long its runlevels took in earlier rollouts of the
// same cluster. It is pure: durations and progress go in, a range comes out.
package estimate
