package upgradeable

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/cluster-version/cvo/pkg/api"
)

// gateFormat is the format of keys in ConfigMap admin-gates: the gated minor version and a name. OpenShift's operator accepts only major
// versions 4 and 5, but other platforms have other version numbers.
const gateFormat = `^ack-([0-9]+[.][0-9]+)-[^-]`

var gatePattern = regexp.MustCompile(gateFormat)

const (
	gatesName = api.ConfigManagedNamespace + "/" + api.AdminGatesConfigMap
	acksName  = api.ConfigNamespace + "/" + api.AdminAcksConfigMap
)

// adminAcks returns an obstacle for every gate of the current minor version that no administrator has acknowledged, and for every invalid
// gate.
//
// A cluster without ConfigMap admin-gates has nothing to acknowledge, unless its release contains the ConfigMap. In that case it was
// deleted or could not be applied, and its content is unknown. OpenShift's releases always contain it, so its operator always reports a
// missing one. A plain Kubernetes cluster with another release may never have had it.
func adminAcks(in Input) []Obstacle {
	if !in.Installed {
		return nil
	}
	switch gates := in.Gates; {
	case gates.Err != nil:
		return []Obstacle{unreadGates("UnableToGetAdminGatesConfigMap", gatesName, gates.Err)}
	case !gates.Found && in.BringsGates:
		return []Obstacle{unreadGates("UnableToGetAdminGatesConfigMap", gatesName, nil)}
	case in.Acks.Err != nil:
		return []Obstacle{unreadGates("UnableToGetAdminAcksConfigMap", acksName, in.Acks.Err)}
	}
	var found []Obstacle
	for _, key := range slices.Sorted(maps.Keys(in.Gates.Data)) {
		if o, objects := gate(key, in.Gates.Data[key], in.Current, in.Acks.Data); objects {
			found = append(found, o)
		}
	}
	// An administrator cannot acknowledge a gate in a ConfigMap that does not exist.
	if !in.Acks.Found && (in.BringsAcks || slices.ContainsFunc(found, func(o Obstacle) bool { return o.Reason == reasonAck })) {
		found = append([]Obstacle{unreadGates("UnableToGetAdminAcksConfigMap", acksName, nil)}, found...)
	}
	return found
}

const reasonAck = "AdminAckRequired"

// gate checks one key of admin-gates.
func gate(key, value, current string, acks map[string]string) (o Obstacle, blocks bool) {
	name := clean(key, maxName)
	o = Obstacle{Source: SourceAdminAck, Subject: name, Risk: riskName(SourceAdminAck, key), URL: docs("admin-acks")}
	match := gatePattern.FindStringSubmatch(key)
	switch {
	case match == nil:
		o.Reason = "AdminAckConfigMapGateNameError"
		o.Message = fmt.Sprintf("%s configmap gate %s has invalid format; must comply with %q.", api.AdminGatesConfigMap, name, gateFormat)
	case !sameMinor(match[1], current):
		return o, false
	case strings.TrimSpace(value) == "":
		o.Reason = "AdminAckConfigMapGateValueError"
		o.Message = fmt.Sprintf("%s configmap gate %s must contain a non-empty value.", api.AdminGatesConfigMap, name)
	case acks[key] != "true":
		o.Reason = reasonAck
		o.Message = cmp.Or(clean(value, maxMessage), fmt.Sprintf("%s configmap gate %s has to be acknowledged.", api.AdminGatesConfigMap, name))
		o.URL = cmp.Or(firstURL(value), o.URL)
	default:
		return o, false
	}
	o.listed = o.Message
	return o, true
}

// sameMinor reports whether version has the given major and minor number.
func sameMinor(minor, version string) bool {
	v, err := semver.Parse(version)
	if err != nil {
		return false
	}
	major, rest, _ := strings.Cut(minor, ".")
	a, errA := strconv.ParseUint(major, 10, 64)
	b, errB := strconv.ParseUint(rest, 10, 64)
	return errA == nil && errB == nil && a == v.Major && b == v.Minor
}

// unreadGates returns the obstacle for a missing ConfigMap, or for one that could not be read because of err.
func unreadGates(reason, name string, err error) Obstacle {
	_, short, _ := strings.Cut(name, "/")
	o := Obstacle{
		Source: SourceAdminAck, Reason: reason, Risk: SourceAdminAck + "Unknown", URL: docs("admin-acks"),
		Message: fmt.Sprintf("%s configmap not found: create ConfigMap %s.", short, name),
	}
	if err != nil {
		o.Message = fmt.Sprintf("Unable to access configmap %s: %s", name, clean(err.Error(), maxMessage))
		o.Unknown, o.Pending = true, errors.Is(err, ErrPending)
	}
	o.listed = o.Message
	return o
}
