package extract

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Selection selects objects from a release. The zero value selects all files unchanged.
type Selection struct {
	// Filter, if set, selects the manifests for a cluster.
	Filter *inclusion.Filter
	// CredentialsRequests selects only CredentialsRequests, without metadata.
	CredentialsRequests bool
	// Provider selects CredentialsRequests with this kind of spec.providerSpec; empty for all.
	Provider string
}

func (s Selection) everything() bool { return s == Selection{} }

// LeftOut is an excluded object.
type LeftOut struct {
	File     string      `json:"file"`
	Document int         `json:"document"`
	Object   manifest.ID `json:"object"`
	Reason   string      `json:"reason"`
}

// choose returns the selected part of a file (nil if nothing is selected) and the excluded objects.
func (s Selection) choose(name string, data []byte) (wanted []byte, leftOut []LeftOut, err error) {
	base := path.Base(name)
	if !manifest.IsFile(base) {
		if metadata := name == payload.MetadataFile || name == payload.ReferencesFile; metadata && !s.CredentialsRequests {
			return data, nil, nil
		}
		return nil, nil, nil
	}
	examined := manifest.Examine(base, data)
	if len(examined.Errors) > 0 {
		errs := make([]error, len(examined.Errors))
		for n, e := range examined.Errors {
			errs[n] = e
		}
		return nil, nil, errorset.Join(errs)
	}
	keep := make([]bool, len(examined.Manifests))
	for n, m := range examined.Manifests {
		reason := s.exclusionReason(m)
		keep[n] = reason == ""
		if reason != "" && reason != otherKind {
			leftOut = append(leftOut, LeftOut{File: m.File, Document: m.Document, Object: m.ID(), Reason: reason})
		}
	}
	switch {
	case !slices.Contains(keep, true):
		return nil, leftOut, nil
	case slices.Contains(keep, false):
		return selectDocuments(data, examined, keep), leftOut, nil
	}
	return data, leftOut, nil
}

// otherKind is the reason for excluding objects of other kinds, which are not reported.
const otherKind = "not a CredentialsRequest"

// exclusionReason returns the reason for excluding an object; empty if the object is selected.
func (s Selection) exclusionReason(m *manifest.Manifest) string {
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
	// A cluster ignores objects without annotations. CredentialsRequests are an exception: OpenShift's installer gives them to the
	// cluster's administrator anyway, and the original client keeps them.
	if request && len(m.Object.GetAnnotations()) == 0 {
		return ""
	}
	reason, _ := s.Filter.Exclude(m)
	return reason
}

// selectDocuments returns the bytes of the selected documents. A partially selected list becomes a JSON list of the selected items.
func selectDocuments(data []byte, examined manifest.Examined, keep []bool) []byte {
	var out bytes.Buffer
	// JSON documents need no separators and can share a line, so each one is copied as parsed.
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

// appendDocument appends a document to a YAML stream.
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

// documents splits a YAML stream at the last separator before each document, so that comments above a document stay with the document.
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

// providers maps clouds to kinds of spec.providerSpec, like OpenShift's client.
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

// Clouds returns the names of the clouds with known CredentialsRequests, sorted.
func Clouds() []string { return slices.Sorted(maps.Keys(providers)) }

// ProviderOf returns the kind of spec.providerSpec for a cloud. It fails for an unknown cloud.
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
