package operator

import "github.com/cluster-version/cvo/pkg/release"

// situation is what decides whether a replica takes part in the election. The zero value is a process outside of the
// cluster.
type situation struct {
	// inside: this process is a pod of the Deployment.
	inside bool
	// own is the release image of this process, template that of the Deployment's pods, desired that of the ClusterVersion's
	// status. Empty means that there is none: no Deployment, or a status that does not say.
	own, template, desired string
}

// turn is what a replica that does not lead does.
type turn string

const (
	// contend: take part in the election, and lead if it is won.
	contend turn = "Contend"
	// standAside: another replica is to lead. If none does, stand in.
	standAside turn = "StandAside"
)

// decide says whether it is a replica's turn to lead. Whoever leads does so until it is stopped, whatever the situation.
//
//	outside of the cluster                     contend
//	no Deployment                              contend     it was deleted, and is to be made again
//	template is own                            contend
//	template is another, desired is own        contend     somebody edited the Deployment, and is to be repaired
//	template is another, desired is not own    stand aside an update or its way back is replacing this replica
func decide(s situation) turn {
	switch {
	case !s.inside, s.template == "", release.SameImage(s.template, s.own), release.SameImage(s.desired, s.own):
		return contend
	}
	return standAside
}
