package installconfig_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/author/extract/installconfig"
)

func TestUnknownValuesAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: v2":                                                              `apiVersion: "v2" is not supported`,
		"apiVersion: v1\nfeatureSet: Some":                                            `featureSet: unknown "Some": use one of CustomNoUpgrade`,
		"apiVersion: v1\nfeatureGates: [A]":                                           `"A" is not NAME=true or NAME=false`,
		"apiVersion: v1\nplatform: {aws: {}, gcp: {}}":                                "choose one of aws, gcp",
		"apiVersion: v1\ncapabilities: {baselineCapabilitySet: v9}":                   `baselineCapabilitySet: unknown "v9"`,
		"apiVersion: v1\ncapabilities: {additionalEnabledCapabilities: [Everything]}": `unknown "Everything"`,
		"[": "install config: ",
	} {
		t.Run("it refuses "+text, func(t *testing.T) {
			_, err := installconfig.Parse([]byte(text))
			assert.ErrorContains(t, err, want)
		})
	}
}
