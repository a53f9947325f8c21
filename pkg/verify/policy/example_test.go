package policy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"github.com/cluster-version/cvo/pkg/verify/policy"
)

func ExampleParse() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		fmt.Println(err)
		return
	}
	trust, err := policy.Parse("platform.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	fmt.Println(len(trust.SigstoreKeys), trust.Empty(), err)
	_, err = policy.Parse("trust.yaml", []byte("a: b"))
	fmt.Println(err != nil)
	// Output:
	// 1 false <nil>
	// true
}
