package verify

import (
	"bytes"
	"cmp"
	"crypto/dsa" //nolint:staticcheck // keys of this kind are in old keyrings; what they sign is held against the same floor
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const (
	// maxKeyringSize and maxKeyringPackets bound a keyring: every self-signature in it is checked when it is read.
	maxKeyringSize    = 1 << 20
	maxKeyringPackets = 4096
	// maxKeyBits bounds the numbers of a key; larger ones take minutes to compute with. maxSubgroupBits is for DSA.
	maxKeyBits      = 16384
	maxSubgroupBits = 512
)

// Keyring is a set of OpenPGP public keys, each of which may sign for the whole. Make it with NewKeyring.
type Keyring struct {
	Name     string
	entities openpgp.EntityList
	// revoked says why a key counts no more, by fingerprint. It holds for every copy of the key in the keyring: the
	// copy that was exported before the revocation must not bring the key back.
	revoked map[string]string
	// skipped are the keys that could not be used, each with the reason.
	skipped []string
}

// Skipped tells which keys of the keyring cannot be used and why, in their order. A keyring is accepted as long as
// one key in it can.
func (k Keyring) Skipped() []string { return slices.Clone(k.skipped) }

// NewKeyring reads one or more OpenPGP public keys, armored (several blocks and text around them are fine) or binary.
// Private keys are refused: whoever distributes them as a trust root has made a mistake.
//
// A keyring is configuration that somebody chose to trust, so its own self-signatures may be made over SHA-1, as those
// of vendor keys from before 2014 are. Signatures of releases may not; see OpenPGPRules.
func NewKeyring(name string, data []byte) (Keyring, error) {
	k := Keyring{Name: name, revoked: map[string]string{}}
	if err := k.read(data); err != nil {
		return Keyring{}, fmt.Errorf("reading OpenPGP keyring %q: %w", name, err)
	}
	return k, nil
}

func (k *Keyring) read(data []byte) error {
	if len(data) > maxKeyringSize {
		return fmt.Errorf("larger than %d bytes", maxKeyringSize)
	}
	blocks := [][]byte{data}
	if bytes.Contains(data, []byte(armorStart)) {
		var err error
		if blocks, err = dearmor(data); err != nil {
			return err
		}
	}
	for _, b := range blocks {
		keys, err := splitKeys(b)
		if err != nil {
			return err
		}
		for _, packets := range keys {
			k.add(packets)
		}
	}
	switch {
	case len(k.entities) > 0:
		return nil
	case len(k.skipped) > 0:
		return fmt.Errorf("no usable public key in it: %s", strings.Join(k.skipped, "; "))
	}
	return errors.New("no public key in it")
}

// add takes one key with all that belongs to it, or notes why it cannot be used.
func (k *Keyring) add(packets []*packet.OpaquePacket) {
	primary, err := readKeyPacket(packets[0])
	if err != nil {
		k.skipped = append(k.skipped, fmt.Sprintf("a key: %v", err))
		return
	}
	e, err := readEntity(packets)
	if err != nil {
		k.skipped = append(k.skipped, fmt.Sprintf("key %016X: %v", primary.KeyId, err))
		if _, ok := errors.AsType[*unreadableRevocationError](err); ok {
			k.revoke(primary, err.Error())
		}
		return
	}
	k.entities = append(k.entities, e)
	for i := range e.Subkeys {
		if sub := &e.Subkeys[i]; len(sub.Revocations) > 0 {
			k.revoke(sub.PublicKey, revocationReason(sub.Revocations))
		}
	}
	why := revocationReason(e.Revocations)
	if id := mainIdentity(e); why == "" && id != nil && len(id.Revocations) > 0 {
		// The best of its identities is revoked, so all are.
		why = "all its user ids are: " + revocationReason(id.Revocations)
	}
	if why != "" {
		k.revoke(e.PrimaryKey, why)
	}
}

func (k *Keyring) revoke(key *packet.PublicKey, why string) {
	if id := fingerprint(key); k.revoked[id] == "" {
		k.revoked[id] = why
	}
}

// check refuses a keyring that could satisfy nobody under the rules.
func (k Keyring) check(rules OpenPGPRules) error {
	if len(k.entities) == 0 {
		return errors.New("it holds no key: make it with NewKeyring")
	}
	var failures []string
	for _, key := range k.keys() {
		if !key.PublicKey.PubKeyAlgo.CanSign() {
			continue
		}
		err := k.usable(key, rules)
		if err == nil {
			return nil
		}
		failures = append(failures, err.Error())
	}
	return fmt.Errorf("no key in it can sign releases: %s", strings.Join(append(failures, k.skipped...), "; "))
}

// usable tells whether a key may sign, apart from its expiry.
func (k Keyring) usable(key openpgp.Key, rules OpenPGPRules) error {
	// A subkey falls with its primary key, also one that is only in another copy of the key.
	for _, p := range []*packet.PublicKey{key.PublicKey, key.Entity.PrimaryKey} {
		if why, ok := k.revoked[fingerprint(p)]; ok {
			return fmt.Errorf("key %016X is revoked (%s)", p.KeyId, why)
		}
	}
	if !maySign(key) {
		return fmt.Errorf("key %016X is not meant for signing", key.PublicKey.KeyId)
	}
	if err := rules.CheckKey(key.PublicKey); err != nil {
		return fmt.Errorf("key %016X is too weak: %w", key.PublicKey.KeyId, err)
	}
	return nil
}

// keys returns all primary keys and subkeys.
func (k Keyring) keys() []openpgp.Key {
	var out []openpgp.Key
	for _, e := range k.entities {
		out = append(out, openpgp.Key{Entity: e, PublicKey: e.PrimaryKey, SelfSignature: selfSignature(e), Revocations: e.Revocations})
		for _, sub := range e.Subkeys {
			out = append(out, openpgp.Key{Entity: e, PublicKey: sub.PublicKey, SelfSignature: sub.Sig, Revocations: sub.Revocations})
		}
	}
	return out
}

func fingerprint(k *packet.PublicKey) string {
	return strings.ToUpper(hex.EncodeToString(k.Fingerprint))
}

// splitKeys returns the packets of every key. The OpenPGP library would attach what belongs to a key that it cannot
// read to the key before, and lose both.
func splitKeys(data []byte) ([][]*packet.OpaquePacket, error) {
	var keys [][]*packet.OpaquePacket
	packets := packet.NewOpaqueReader(bytes.NewReader(data))
	for n := 1; ; n++ {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return keys, nil
		}
		if err != nil {
			return nil, err
		}
		if n > maxKeyringPackets {
			return nil, fmt.Errorf("more than %d packets: export only the keys that sign, without the signatures of others", maxKeyringPackets)
		}
		switch p.Tag {
		case tagPublicKey:
			keys = append(keys, []*packet.OpaquePacket{p})
		case tagPublicSubkey, tagUserID, tagUserAttribute, tagSignature:
			if len(keys) == 0 {
				return nil, fmt.Errorf("it begins with a packet of type %d, not with a public key", p.Tag)
			}
			keys[len(keys)-1] = append(keys[len(keys)-1], p)
		case tagPrivateKey, tagPrivateSubkey:
			return nil, errPrivateKey
		case tagMarker, tagPadding, tagTrust:
		default:
			if p.Tag < firstIgnorableTag {
				return nil, fmt.Errorf("unexpected packet of type %d in a keyring", p.Tag)
			}
		}
	}
}

func readEntity(packets []*packet.OpaquePacket) (*openpgp.Entity, error) {
	var out bytes.Buffer
	for _, p := range packets {
		switch p.Tag {
		case tagPublicSubkey:
			// One of an unknown kind is left out; its binding belongs to nothing then.
			if _, err := readKeyPacket(p); errors.Is(err, errKeyTooLarge) {
				return nil, err
			}
		case tagSignature:
			if err := checkRevocation(p); err != nil {
				return nil, err
			}
		}
		if err := p.Serialize(&out); err != nil {
			return nil, err
		}
	}
	return openpgp.ReadEntity(packet.NewReader(&out))
}

var (
	errKeyTooLarge = fmt.Errorf("its numbers are larger than %d bits", maxKeyBits)
	errPrivateKey  = errors.New("it holds a private key: export the public key only")
)

func readKeyPacket(p *packet.OpaquePacket) (*packet.PublicKey, error) {
	parsed, err := (&packet.OpaquePacket{Tag: p.Tag, Contents: p.Contents}).Parse()
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*packet.PublicKey)
	if !ok {
		return nil, errors.New("not a public key")
	}
	if bits, err := key.BitLength(); err == nil && bits > maxKeyBits {
		return nil, errKeyTooLarge
	}
	if d, ok := key.PublicKey.(*dsa.PublicKey); ok && d.Q.BitLen() > maxSubgroupBits {
		return nil, errKeyTooLarge
	}
	return key, nil
}

// unreadableRevocationError is a revocation that the OpenPGP library would pass over, as if the key were good.
type unreadableRevocationError struct{ err error }

func (e *unreadableRevocationError) Error() string {
	return fmt.Sprintf("it carries a revocation that cannot be read: %v", e.err)
}

func checkRevocation(p *packet.OpaquePacket) error {
	kind, ok := signatureType(p.Contents)
	if !ok || kind != packet.SigTypeKeyRevocation && kind != packet.SigTypeSubkeyRevocation {
		return nil
	}
	if _, err := (&packet.OpaquePacket{Tag: p.Tag, Contents: p.Contents}).Parse(); err != nil {
		return &unreadableRevocationError{err}
	}
	return nil
}

// signatureType reads the type of a signature packet of any version.
func signatureType(contents []byte) (packet.SignatureType, bool) {
	at := 1
	if len(contents) > 0 && contents[0] <= 3 {
		at = 2 // The length of the hashed material comes first.
	}
	if len(contents) <= at {
		return 0, false
	}
	return packet.SignatureType(contents[at]), true
}

// revocationReason is empty if there is no revocation. Every revocation is final, whatever its reason and date: a date
// is of no use against whoever has the key and can write any date into a signature.
func revocationReason(revocations []*packet.Signature) string {
	if len(revocations) == 0 {
		return ""
	}
	reasons := make([]string, len(revocations))
	for i, r := range revocations {
		reasons[i] = reasonText(r)
	}
	slices.Sort(reasons)
	return strings.Join(slices.Compact(reasons), ", ")
}

func reasonText(r *packet.Signature) string {
	text := "no reason given"
	if r.RevocationReason != nil {
		switch *r.RevocationReason {
		case packet.KeySuperseded:
			text = "superseded"
		case packet.KeyCompromised:
			text = "compromised"
		case packet.KeyRetired:
			text = "retired"
		case packet.UserIDNotValid:
			text = "user id no longer valid"
		default:
		}
	}
	if r.RevocationReasonText != "" {
		text += fmt.Sprintf(": %q", r.RevocationReasonText)
	}
	return text
}

// mainIdentity is the identity that speaks for a key: one that is not revoked, then one marked as primary, then the
// latest. The library's own choice between equals changes from call to call.
func mainIdentity(e *openpgp.Entity) *openpgp.Identity {
	var all []*openpgp.Identity
	for _, id := range e.Identities {
		if id.SelfSignature != nil || len(id.Revocations) > 0 {
			all = append(all, id)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *openpgp.Identity) int {
		return cmp.Or(
			trueLast(len(a.Revocations) > 0, len(b.Revocations) > 0),
			trueLast(!primaryID(a), !primaryID(b)),
			latestFirst(a, b),
			cmp.Compare(a.Name, b.Name))
	})
}

func trueLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func primaryID(id *openpgp.Identity) bool {
	return id.SelfSignature != nil && id.SelfSignature.IsPrimaryId != nil && *id.SelfSignature.IsPrimaryId
}

func latestFirst(a, b *openpgp.Identity) int {
	if a.SelfSignature == nil || b.SelfSignature == nil {
		return trueLast(a.SelfSignature == nil, b.SelfSignature == nil)
	}
	return b.SelfSignature.CreationTime.Compare(a.SelfSignature.CreationTime)
}

// selfSignature carries the properties of a primary key: since version 6 in a signature of its own.
func selfSignature(e *openpgp.Entity) *packet.Signature {
	if e.PrimaryKey.Version >= 6 {
		return e.SelfSignature
	}
	if id := mainIdentity(e); id != nil {
		return id.SelfSignature
	}
	return nil
}

const (
	armorStart      = "-----BEGIN PGP "
	publicKeyBlock  = "PGP PUBLIC KEY BLOCK"
	privateKeyBlock = "PGP PRIVATE KEY BLOCK"
)

// dearmor returns the contents of every armored key block in data.
func dearmor(data []byte) ([][]byte, error) {
	var out [][]byte
	for {
		i := bytes.Index(data, []byte(armorStart))
		if i < 0 {
			return out, nil
		}
		data = data[i:]
		block, err := armor.Decode(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
		switch block.Type {
		case publicKeyBlock:
		case privateKeyBlock:
			return nil, errPrivateKey
		default:
			return nil, fmt.Errorf("it holds a %s where a %s is expected", block.Type, publicKeyBlock)
		}
		body, err := io.ReadAll(block.Body)
		if err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
		out = append(out, body)
		data = data[len(armorStart):]
	}
}
