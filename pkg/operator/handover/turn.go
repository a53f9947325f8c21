package handover

import (
	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/pkg/release"
)

// situation is the input for the decision whether a replica contends for the lead.
type situation struct {
	// own is the release image of this process, template the image of the Deployment's pods, and desired the image in the ClusterVersion's
	// status. An image is empty if there is no Deployment or no release in the status.
	own, template, desired string
}

// decision returns whether this replica may lead.
func (s situation) decision() lead.Decision {
	return lead.Decision{Known: true, Contend: s.contends(), Own: s.own, Deployed: s.template}
}

// contends reports whether a replica contends for the lead. It does not affect a leader, which leads until it is stopped.
//
//	no Deployment                              contend     it was deleted, and has to be recreated
//	template is own                            contend
//	template is another, desired is own        contend     another client edited the Deployment; to be repaired
//	template is another, desired is not own    stand aside an update or a rollback is replacing this replica
func (s situation) contends() bool {
	return s.template == "" || release.SameImage(s.template, s.own) || release.SameImage(s.desired, s.own)
}
