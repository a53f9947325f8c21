package mirrorset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// maxMirrorBytes is the maximum size of a file of mirror sets.
const maxMirrorBytes = 4 << 20

// Parse parses ImageDigestMirrorSets, ImageTagMirrorSets and ImageContentSourcePolicies, as YAML or JSON. data may have several documents
// and lists. Other kinds are errors. Unknown fields are errors too, because a misspelled rule would have no effect.
func Parse(data []byte) ([]runtime.Object, error) {
	if len(data) > maxMirrorBytes {
		return nil, fmt.Errorf("%w: the mirror sets have more than %d bytes", failure.ErrLimit, maxMirrorBytes)
	}
	var objects []runtime.Object
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if err := aliases.Check(document); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		raw, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		found, err := mirrorSets(raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		objects = append(objects, found...)
	}
	if len(objects) == 0 {
		return nil, errors.New("found no ImageDigestMirrorSet, ImageTagMirrorSet or ImageContentSourcePolicy")
	}
	return objects, nil
}

// mirrorSets parses one object, or the items of a list.
func mirrorSets(raw []byte) ([]runtime.Object, error) {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, err
	}
	const config, operator = "config.openshift.io/v1", "operator.openshift.io/v1alpha1"
	var object runtime.Object
	switch kind {
	case metav1.TypeMeta{APIVersion: config, Kind: "ImageDigestMirrorSet"}:
		object = &configv1.ImageDigestMirrorSet{}
	case metav1.TypeMeta{APIVersion: config, Kind: "ImageTagMirrorSet"}:
		object = &configv1.ImageTagMirrorSet{}
	case metav1.TypeMeta{APIVersion: operator, Kind: "ImageContentSourcePolicy"}:
		object = &operatorv1alpha1.ImageContentSourcePolicy{}
	case metav1.TypeMeta{APIVersion: "v1", Kind: "List"},
		metav1.TypeMeta{APIVersion: config, Kind: "ImageDigestMirrorSetList"},
		metav1.TypeMeta{APIVersion: config, Kind: "ImageTagMirrorSetList"},
		metav1.TypeMeta{APIVersion: operator, Kind: "ImageContentSourcePolicyList"}:
		return mirrorSetItems(raw)
	default:
		return nil, fmt.Errorf("%s %s is not an ImageDigestMirrorSet, ImageTagMirrorSet or ImageContentSourcePolicy", kind.APIVersion, kind.Kind)
	}
	if err := yaml.UnmarshalStrict(raw, object); err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return []runtime.Object{object}, nil
}

func mirrorSetItems(raw []byte) ([]runtime.Object, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for i, item := range list.Items {
		var kind metav1.TypeMeta
		if err := json.Unmarshal(item, &kind); err == nil && strings.HasSuffix(kind.Kind, "List") {
			return nil, fmt.Errorf("item %d is a list: nested lists are not allowed", i+1)
		}
		found, err := mirrorSets(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
