package inspect

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Selection says which objects of a release are wanted. The zero value wants its files as they are.
type Selection struct {
	// Filter, if set, keeps the manifests that such a cluster gets.
	Filter *manifest.Filter
	// CredentialsRequests keeps objects of that kind only, and no metadata.
	CredentialsRequests bool
	// Provider keeps the CredentialsRequests whose spec.providerSpec is of that kind; default all.
	Provider string
}

func (s Selection) everything() bool { return s == Selection{} }

// LeftOut is an object that a selection does not want.
type LeftOut struct {
	File     string      `json:"file"`
	Document int         `json:"document"`
	Object   manifest.ID `json:"object"`
	Reason   string      `json:"reason"`
}

// choose gives what of a file is wanted, nil if nothing is, and tells which objects are left out of it.
func (s Selection) choose(name string, data []byte) (wanted []byte, leftOut []LeftOut, err error) {
	base := path.Base(name)
	if !manifest.IsFile(base) {
		if metadata := name == payload.MetadataFile || name == payload.ReferencesFile; metadata && !s.CredentialsRequests {
			return data, nil, nil
		}
		return nil, nil, nil
	}
	examined := manifest.Examine(base, data, manifest.Limits{})
	if len(examined.Errors) > 0 {
		errs := make([]error, len(examined.Errors))
		for n, e := range examined.Errors {
			errs[n] = e
		}
		return nil, nil, manifest.JoinSorted(errs)
	}
	keep := make([]bool, len(examined.Manifests))
	for n, m := range examined.Manifests {
		reason := s.leaveOut(m)
		keep[n] = reason == ""
		if reason != "" && reason != otherKind {
			leftOut = append(leftOut, LeftOut{File: m.File, Document: m.Document, Object: m.ID(), Reason: reason})
		}
	}
	switch {
	case !slices.Contains(keep, true):
		return nil, leftOut, nil
	case slices.Contains(keep, false):
		return cut(data, examined, keep), leftOut, nil
	}
	return data, leftOut, nil
}

// otherKind is the reason to leave out what was not asked for at all.
const otherKind = "not a CredentialsRequest"

// leaveOut says why an object is not wanted; empty if it is.
func (s Selection) leaveOut(m *manifest.Manifest) string {
	request := m.Is(credentialsGroup, "CredentialsRequest")
	if s.CredentialsRequests {
		if !request {
			return otherKind
		}
		if reason := s.otherProvider(m); reason != "" {
			return reason
		}
	}
	if s.Filter == nil {
		return ""
	}
	// A cluster leaves out what has no annotations. OpenShift's installer hands CredentialsRequests to the cluster's
	// administrator all the same, and the original keeps them.
	if request && len(m.Object.GetAnnotations()) == 0 {
		return ""
	}
	reason, _ := s.Filter.Exclude(m)
	return reason
}

// cut keeps the bytes of the documents that are wanted. Of a list of which some items are, these items remain, as JSON.
func cut(data []byte, examined manifest.Examined, keep []bool) []byte {
	var out bytes.Buffer
	// JSON documents need no separators and may share lines, so they are taken as they were read.
	if bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{")) {
		for n, m := range examined.Manifests {
			if keep[n] {
				out.Write(bytes.TrimSpace(m.Raw))
				out.WriteByte('\n')
			}
		}
		return out.Bytes()
	}
	texts := documents(data, examined.Lines)
	for n := 0; n < len(examined.Manifests); {
		document := examined.Manifests[n].Document
		end := n
		for end < len(examined.Manifests) && examined.Manifests[end].Document == document {
			end++
		}
		switch kept := keep[n:end]; {
		case !slices.Contains(kept, false):
			appendDocument(&out, texts[document-1])
		case slices.Contains(kept, true):
			for i, wanted := range kept {
				if wanted {
					appendDocument(&out, append(bytes.Clone(examined.Manifests[n+i].Raw), '\n'))
				}
			}
		}
		n = end
	}
	return out.Bytes()
}

// appendDocument adds one document to a YAML stream.
func appendDocument(out *bytes.Buffer, text []byte) {
	if out.Len() > 0 {
		if out.Bytes()[out.Len()-1] != '\n' {
			out.WriteByte('\n')
		}
		if !bytes.HasPrefix(text, []byte("---")) {
			out.WriteString("---\n")
		}
	}
	out.Write(text)
}

// documents cuts a YAML stream at the last separator before each of the lines on which its documents begin, so that
// comments above a document stay with it.
func documents(data []byte, lines []int) [][]byte {
	starts := make([]int, 0, len(lines)+1)
	separator, line := 0, 0
	for pos := 0; pos < len(data) && len(starts) < len(lines); {
		line++
		end := pos + bytes.IndexByte(data[pos:], '\n') + 1
		if end == pos {
			end = len(data)
		}
		if bytes.HasPrefix(data[pos:end], []byte("---")) {
			separator = pos
		}
		if line == lines[len(starts)] {
			starts = append(starts, separator)
		}
		pos = end
	}
	starts = append(starts, len(data))
	out := make([][]byte, len(lines))
	for n := range out {
		out[n] = data[starts[n]:starts[n+1]]
	}
	if len(out) > 0 {
		out[0] = bytes.TrimPrefix(out[0], []byte("\xef\xbb\xbf"))
	}
	return out
}

// credentialsGroup is the API group of OpenShift's cloud credential operator.
const credentialsGroup = "cloudcredential.openshift.io"

// providers are the kinds of spec.providerSpec by cloud, as OpenShift's client knows them.
var providers = map[string]string{
	"alibabacloud": "AlibabaCloudProviderSpec",
	"aws":          "AWSProviderSpec",
	"azure":        "AzureProviderSpec",
	"gcp":          "GCPProviderSpec",
	"ibmcloud":     "IBMCloudProviderSpec",
	"nutanix":      "NutanixProviderSpec",
	"openstack":    "OpenStackProviderSpec",
	"ovirt":        "OvirtProviderSpec",
	"powervs":      "IBMCloudPowerVSProviderSpec",
	"vsphere":      "VSphereProviderSpec",
}

// Clouds lists the clouds that CredentialsRequests are known for.
func Clouds() []string { return slices.Sorted(maps.Keys(providers)) }

// ProviderOf is the kind of spec.providerSpec of a cloud's CredentialsRequests.
func ProviderOf(cloud string) (string, error) {
	kind, ok := providers[strings.ToLower(cloud)]
	if !ok {
		return "", fmt.Errorf("unknown cloud %q: use one of %s", cloud, strings.Join(Clouds(), ", "))
	}
	return kind, nil
}

func (s Selection) otherProvider(m *manifest.Manifest) string {
	spec, _ := m.Object.Object["spec"].(map[string]any)
	provider, _ := spec["providerSpec"].(map[string]any)
	kind, _ := provider["kind"].(string)
	if s.Provider == "" || kind == s.Provider {
		return ""
	}
	return fmt.Sprintf("is for %s, not %s", kind, s.Provider)
}
