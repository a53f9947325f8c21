package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

const (
	// DumpSuffix is part of the file name of a dumped ClusterVersion. The other files of the dump have another suffix instead.
	DumpSuffix = "-cv.yaml"
	// dumpFileBytes limits one file of a dump. The MachineConfigs of a large cluster have some ten megabytes.
	dumpFileBytes = 256 << 20
	// dumpDelay is the time that oc adds to the newest time in a dump to get the current time.
	dumpDelay = 368975 * time.Nanosecond
)

// Dump reads the file of a ClusterVersion and the files next to it with the same prefix.
func Dump(file string) (insight.Input, error) {
	cut := strings.LastIndex(file, DumpSuffix)
	sibling := func(suffix string) string { return file[:cut] + suffix + file[cut+len(DumpSuffix):] }
	none := ""
	in := insight.Input{AsOriginal: true, ConfigOperatorImage: &none}
	var err error
	if in.ClusterVersion, err = DumpedClusterVersion(file); err != nil {
		return in, err
	}
	s := sections{in: &in}
	in.Operators, err = readObjects[configv1.ClusterOperator](sibling("-co.yaml"))
	s.note(err, insight.SectionOperators)
	in.Pools, err = readObjects[mcfgv1.MachineConfigPool](sibling("-mcp.yaml"))
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	in.Nodes, err = readObjects[corev1.Node](sibling("-node.yaml"))
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	configs, err := readObjects[metav1.PartialObjectMetadata](sibling("-mc.yaml"))
	s.note(err, insight.SectionWorkers)
	in.Releases = releasesOf(configs)

	deployments, err := readObjects[appsv1.Deployment](sibling("-mco-deployment.yaml"))
	if !errors.Is(err, fs.ErrNotExist) {
		s.note(err, insight.SectionConfigOperator)
	}
	if image := configOperatorImage(deployments); image != nil {
		in.ConfigOperatorImage = image
	}
	alerts, err := ReadFile(sibling("-alerts.json"))
	if err == nil {
		in.Alerts, err = ParseAlerts(alerts)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.note(err, insight.SectionHealth)
	}
	in.Now = NewestTransition(in)
	return in, nil
}

// DumpedClusterVersion reads a ClusterVersion from a file.
func DumpedClusterVersion(file string) (*configv1.ClusterVersion, error) {
	versions, err := readObjects[configv1.ClusterVersion](file)
	if err != nil {
		return nil, err
	}
	if len(versions) != 1 {
		return nil, fmt.Errorf("%s contains %d ClusterVersions instead of one", file, len(versions))
	}
	return &versions[0], nil
}

// MustGather reads the output of 'oc adm must-gather' from a folder, or from its only subfolder of an image.
func MustGather(dir string) (insight.Input, error) {
	var in insight.Input
	const kinds = "cluster-scoped-resources"
	root := dir
	if _, err := os.Stat(filepath.Join(root, kinds)); err != nil {
		found, err := filepath.Glob(filepath.Join(dir, "*", kinds))
		if err != nil || len(found) != 1 {
			return in, fmt.Errorf("%[1]s contains %[3]d must-gathers instead of one: a must-gather has a folder %[2]s", dir, kinds, len(found))
		}
		root = filepath.Dir(found[0])
	}
	versions, err := readFolder[configv1.ClusterVersion](root, kinds, "config.openshift.io", "clusterversions")
	if err != nil {
		return in, err
	}
	if len(versions) != 1 {
		return in, fmt.Errorf("%s contains %d ClusterVersions instead of one", root, len(versions))
	}
	in.ClusterVersion = &versions[0]

	s := sections{in: &in}
	in.Operators, err = readFolder[configv1.ClusterOperator](root, kinds, "config.openshift.io", "clusteroperators")
	s.note(err, insight.SectionOperators)
	in.Pools, err = readFolder[mcfgv1.MachineConfigPool](root, kinds, "machineconfiguration.openshift.io", "machineconfigpools")
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	in.Nodes, err = readFolder[corev1.Node](root, kinds, "core", "nodes")
	s.note(err, insight.SectionControlNodes, insight.SectionWorkers)
	configs, err := readFolder[metav1.PartialObjectMetadata](root, kinds, "machineconfiguration.openshift.io", "machineconfigs")
	s.note(err, insight.SectionWorkers)
	in.Releases = releasesOf(configs)
	if needsConfigOperatorImage(in.Operators) {
		deployments, err := readObjects[appsv1.Deployment](filepath.Join(root, "namespaces", api.MachineConfigNamespace, "apps", "deployments.yaml"))
		s.note(err, insight.SectionConfigOperator)
		if image := configOperatorImage(deployments); image != nil {
			in.ConfigOperatorImage = image
		}
	}
	in.Alerts, err = gatheredAlerts(root)
	s.note(err, insight.SectionHealth)
	in.Now = NewestTransition(in)
	return in, nil
}

// gatheredAlerts returns the alerts in the alerting rules that a must-gather contains.
func gatheredAlerts(root string) ([]firing.Alert, error) {
	file := filepath.Join(root, "monitoring", "prometheus", "rules.json")
	data, err := ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("this must-gather has no alerts: monitoring/prometheus/rules.json is missing")
	}
	if err != nil {
		return nil, err
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Alerts []firing.Alert `json:"alerts"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &rules); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var alerts []firing.Alert
	for _, group := range rules.Data.Groups {
		for _, rule := range group.Rules {
			alerts = append(alerts, rule.Alerts...)
		}
	}
	return alerts, nil
}

// sections records for which parts of the assessment data could not be read.
type sections struct{ in *insight.Input }

func (s sections) note(err error, sections ...insight.Section) {
	if err == nil {
		return
	}
	for _, section := range sections {
		s.in.Missing = append(s.in.Missing, insight.Missing{Section: section, Reason: err.Error(), Absent: errors.Is(err, ErrAbsent)})
	}
}

// NewestTransition returns the latest transition time in a dump.
func NewestTransition(in insight.Input) time.Time {
	conditions := slices.Clone(in.ClusterVersion.Status.Conditions)
	for i := range in.Operators {
		conditions = append(conditions, in.Operators[i].Status.Conditions...)
	}
	var newest time.Time
	for _, c := range conditions {
		if c.LastTransitionTime.After(newest) {
			newest = c.LastTransitionTime.Time
		}
	}
	return newest.Add(dumpDelay)
}

func releasesOf(configs []metav1.PartialObjectMetadata) map[string]string {
	releases := map[string]string{}
	for i := range configs {
		if release := configs[i].Annotations[api.ReleaseAnnotation]; release != "" {
			releases[configs[i].Name] = release
		}
	}
	return releases
}

// ReadFile reads a file of a dump, up to a size limit.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, dumpFileBytes+1))
	if err == nil && len(data) > dumpFileBytes {
		err = fmt.Errorf("%s is larger than %d MiB", path, dumpFileBytes>>20)
	}
	return data, err
}

func readObjects[T any](path string) ([]T, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	objects, err := ParseObjects[T](data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objects, nil
}

func readFolder[T any](root string, path ...string) ([]T, error) {
	dir := filepath.Join(append([]string{root}, path...)...)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []T
	for _, entry := range entries {
		if entry.IsDir() || filepath.Ext(entry.Name()) != ".yaml" {
			continue
		}
		objects, err := readObjects[T](filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// ParseObjects reads a document with one object or a list of objects.
func ParseObjects[T any](data []byte) ([]T, error) {
	if err := aliases.Check(data); err != nil {
		return nil, err
	}
	var list struct {
		Kind  string             `json:"kind"`
		Items *[]json.RawMessage `json:"items"`
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	items := []json.RawMessage{text}
	switch {
	case list.Items != nil:
		items = *list.Items
	case strings.HasSuffix(list.Kind, "List"):
		items = nil
	case list.Kind == "":
		return nil, errors.New("it is neither an object nor a list of objects")
	}
	objects := make([]T, len(items))
	for i, item := range items {
		if err := json.Unmarshal(item, &objects[i]); err != nil {
			return nil, fmt.Errorf("object %d: %w", i+1, err)
		}
	}
	return objects, nil
}

// ParseAlerts reads a response of Prometheus's /api/v1/alerts.
func ParseAlerts(data []byte) ([]firing.Alert, error) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Alerts []firing.Alert `json:"alerts"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("parsing the response of Prometheus: %w", err)
	}
	if answer.Status == "error" {
		return nil, fmt.Errorf("Prometheus returned an error: %s", terminal.OneLine(answer.Error)) //nolint:staticcheck // its name
	}
	return answer.Data.Alerts, nil
}
