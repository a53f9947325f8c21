package payload_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
)

// oracleDocument is a document decoded by the original's decoder. The oracle shares no code with packages manifest and payload. It reads
// with k8s.io/apimachinery and implements the inclusion rules and the hash independently, from their definitions.
type oracleDocument struct {
	raw         []byte
	group, kind string
	annotations map[string]string
}

func (d *oracleDocument) UnmarshalJSON(data []byte) error {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	d.raw, d.kind, d.annotations = slices.Clone(data), object.Kind, object.Metadata.Annotations
	if group, _, ok := strings.Cut(object.APIVersion, "/"); ok {
		d.group = group
	}
	return nil
}

// oracleCluster holds the cluster settings that select documents.
type oracleCluster struct {
	profile, featureSet string
	gates               []string
	major               uint64
}

func (c oracleCluster) includes(d oracleDocument) bool {
	const prefix = "release.openshift.io/"
	if d.annotations["include."+prefix+c.profile] != "true" {
		return false
	}
	featureSets, hasSets := d.annotations[prefix+"feature-set"]
	features, hasFeatures := d.annotations[prefix+"feature-gate"]
	majors, hasMajors := d.annotations[prefix+"major-version"]
	switch {
	case hasSets && hasFeatures:
		return false
	case hasSets && !c.hasFeatureSet(strings.Split(featureSets, ",")):
		return false
	case hasFeatures && !c.hasFeatures(strings.Split(features, ",")):
		return false
	}
	return !hasMajors || c.hasMajor(d, strings.Split(majors, ","))
}

func (c oracleCluster) hasFeatureSet(list []string) bool {
	known := []string{"Default", "TechPreviewNoUpgrade", "DevPreviewNoUpgrade", "CustomNoUpgrade", "OKD"}
	for _, set := range list {
		if !slices.Contains(known, set) {
			return false
		}
	}
	return slices.Contains(list, c.featureSet)
}

func (c oracleCluster) hasFeatures(list []string) bool {
	for _, entry := range list {
		entry = strings.TrimSpace(entry)
		unwanted := strings.HasPrefix(entry, "-")
		name := strings.TrimPrefix(entry, "-")
		if name != "" && slices.Contains(c.gates, name) == unwanted {
			return false
		}
	}
	return true
}

func (c oracleCluster) hasMajor(d oracleDocument, list []string) bool {
	if d.kind+"."+d.group != "FeatureGate.config.openshift.io" && d.kind+"."+d.group != "CustomResourceDefinition.apiextensions.k8s.io" {
		return false
	}
	own, listed, positive := strconv.FormatUint(c.major, 10), false, false
	for _, entry := range list {
		switch entry = strings.TrimSpace(entry); {
		case entry == "":
		case entry == "-"+own:
			return false
		case !strings.HasPrefix(entry, "-"):
			positive, listed = true, listed || entry == own
		}
	}
	return listed || !positive
}

// hash returns 64-bit FNV-1 over the documents that the cluster includes, in URL-safe base64.
func (c oracleCluster) hash(documents []oracleDocument) string {
	sum := uint64(14695981039346656037)
	for _, d := range documents {
		if !c.includes(d) {
			continue
		}
		for _, b := range d.raw {
			sum = sum*1099511628211 ^ uint64(b)
		}
	}
	return base64.URLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, sum))
}

// oracleRelease holds the documents of a real release without the operator's own, which depend on the profile.
type oracleRelease struct {
	dir     string
	release []oracleDocument
	images  map[string]string
}

func newOracle(t *testing.T, version string) oracleRelease {
	t.Helper()
	o := oracleRelease{dir: filepath.Join(fixture.Testdata(t), "payloads", version), images: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(o.dir, "release-manifests", "image-references"))
	require.NoError(t, err)
	var references struct {
		Spec struct {
			Tags []struct {
				Name string `json:"name"`
				From struct {
					Name string `json:"name"`
				} `json:"from"`
			} `json:"tags"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(text, &references))
	for _, tag := range references.Spec.Tags {
		o.images[tag.Name] = tag.From.Name
	}
	o.release = o.read(t, "release-manifests", func(text []byte) []byte { return text })
	return o
}

// operator returns the operator's own documents.
func (o oracleRelease) operator(t *testing.T, image, profile string) []oracleDocument {
	t.Helper()
	values := map[string]any{"ReleaseImage": image, "ClusterProfile": profile, "Images": o.images}
	return o.read(t, "manifests", func(text []byte) []byte {
		var out bytes.Buffer
		require.NoError(t, template.Must(template.New("").Parse(string(text))).Execute(&out, values))
		return out.Bytes()
	})
}

func (o oracleRelease) read(t *testing.T, folder string, render func([]byte) []byte) []oracleDocument {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(o.dir, folder))
	require.NoError(t, err)
	var out []oracleDocument
	for _, entry := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(o.dir, folder, entry.Name()))
		require.NoError(t, err)
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(render(text)), 1024)
		for {
			var d oracleDocument
			err := decoder.Decode(&d)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, entry.Name())
			if d.kind != "" {
				out = append(out, d)
			}
		}
	}
	return out
}

// TestRealReleaseHashMatchesTheOriginal compares payload hashes with the oracle's, for both real releases, all profiles, all feature sets
// and several sets of feature gates.
//
//threat:kubectl-original-reads
func TestRealReleaseHashMatchesTheOriginal(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run(version, func(t *testing.T) {
			image, oracle := "registry.example/release:"+version, newOracle(t, version)
			first := oracleCluster{profile: "self-managed-high-availability", featureSet: "Default", major: 4}
			assert.Equal(t, first.hash(slices.Concat(oracle.operator(t, image, first.profile), oracle.release)), realPayload(t, version).Hash)
			if fixture.RaceDetector {
				return // `make test` compares the rest without the race detector
			}
			release := oracle.compare(t, payload.ReleaseDir, image, "", oracle.release)
			hashes := sets.New[string]()
			for _, profile := range inclusion.KnownProfiles() {
				operator := oracle.operator(t, image, profile)
				manifests := slices.Concat(oracle.compare(t, payload.OperatorDir, image, profile, operator), release)
				documents := slices.Concat(operator, oracle.release)
				for _, c := range oracleClusters(profile) {
					got := payload.HashOf(manifests, inclusion.Filter{
						Profile: c.profile, FeatureSet: c.featureSet, Gates: sets.New(c.gates...), MajorVersion: new(c.major),
					})
					assert.Equal(t, c.hash(documents), got, "%+v", c)
					hashes.Insert(got)
				}
			}
			assert.Greater(t, hashes.Len(), 30, "too few distinct hashes: the settings must select different manifests")
		})
	}
}

// compare reads a folder and compares each manifest with the oracle's document.
func (o oracleRelease) compare(t *testing.T, folder, image, profile string, documents []oracleDocument) []*manifest.Manifest {
	t.Helper()
	manifests, err := payload.ReadManifests(os.DirFS(o.dir), folder, image, profile, o.images)
	require.NoError(t, err)
	require.Len(t, manifests, len(documents))
	for i, m := range manifests {
		require.Equal(t, string(documents[i].raw), string(m.Raw), m.String())
	}
	return manifests
}

func oracleClusters(profile string) []oracleCluster {
	var out []oracleCluster
	for _, featureSet := range inclusion.KnownFeatureSets() {
		for _, gates := range [][]string{
			{},
			{"ClusterAPIMachineManagement"},
			{"CRDCompatibilityRequirementOperator", "GatewayAPIWithoutOLM"},
			{"ClusterAPIMachineManagement", "ClusterAPIMachineManagementAWS", "InsightsConfig", "ClusterUpdateAcceptRisks"},
		} {
			for _, major := range []uint64{4, 11} {
				out = append(out, oracleCluster{profile, featureSet, gates, major})
			}
		}
	}
	return out
}
