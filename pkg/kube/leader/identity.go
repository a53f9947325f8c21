package leader

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// Identity identifies a replica in the Lease: <host>_<unique>, the usual form of leader election. If the replica serves an endpoint,
// _<fingerprint> follows. Readers of the Lease then know which pod leads and can verify its key.
type Identity struct {
	// Host is the name of the pod, or of the host outside a pod. A pod in the host network does not use its node's host name.
	Host string
	// Unique distinguishes two processes on one host.
	Unique string
	// Fingerprint is the fingerprint of the serving key (see certificate.Fingerprint); empty if nothing is served.
	Fingerprint string
}

// UUIDs and base64url make this unambiguous for any host name.
var identityPattern = regexp.MustCompile(`^(.+?)_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_([A-Za-z0-9_-]{43}))?$`)

// NewIdentity returns the identity of this process. pod is empty outside a pod, and fingerprint if nothing is served.
func NewIdentity(pod, fingerprint string) (Identity, error) {
	host := pod
	if host == "" {
		var err error
		if host, err = os.Hostname(); err != nil {
			return Identity{}, fmt.Errorf("reading the name of this host: %w", err)
		}
	}
	return Identity{Host: host, Unique: string(uuid.NewUUID()), Fingerprint: fingerprint}, nil
}

// ParseIdentity parses the holder of a Lease. It treats a holder in another form as a host name.
func ParseIdentity(holder string) Identity {
	match := identityPattern.FindStringSubmatch(holder)
	if match == nil {
		return Identity{Host: holder}
	}
	return Identity{Host: match[1], Unique: match[2], Fingerprint: match[3]}
}

// String returns the identity in the form for the Lease.
func (id Identity) String() string {
	parts := []string{id.Host, id.Unique, id.Fingerprint}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "_")
}
