package ownership_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

func ExampleOurs() {
	ours := metav1.ManagedFieldsEntry{
		Manager: api.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1",
		Time: new(metav1.NewTime(time.Unix(1700000000, 0))), FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{},"f:b":{}}}`),
	}
	applied := ownership.Ours([]metav1.ManagedFieldsEntry{ours})

	// Another client changes b, so the API server makes it the owner of b.
	ours.FieldsV1 = metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`)
	now := []metav1.ManagedFieldsEntry{ours, {
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time: new(metav1.NewTime(time.Unix(1700000060, 0))), FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:b":{}}}`),
	}}
	fmt.Println(ownership.Ours(now) == applied, ownership.Writer(now))
	// Output: false kubectl
}
