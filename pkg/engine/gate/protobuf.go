package gate

import (
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reset and Unmarshal let client-go decode the protobuf encoding. CustomResourceDefinition and APIService have the same field numbers:
// metadata 1, status 3, status.conditions 1. Unmarshal skips the spec unread.

// Reset clears the object.
func (c *Conditioned) Reset() { *c = Conditioned{} }

// Unmarshal adds the fields of an encoded object.
func (c *Conditioned) Unmarshal(data []byte) error {
	for len(data) > 0 {
		number, value, n, err := field(data)
		switch {
		case err != nil:
		case number == 1:
			err = c.ObjectMeta.Unmarshal(value)
		case number == 3:
			err = c.Status.unmarshal(value)
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (s *ConditionedStatus) unmarshal(data []byte) error {
	for len(data) > 0 {
		number, value, n, err := field(data)
		if err == nil && number == 1 {
			s.Conditions = append(s.Conditions, metav1.Condition{})
			err = unmarshalCondition(value, &s.Conditions[len(s.Conditions)-1])
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func unmarshalCondition(data []byte, condition *metav1.Condition) error {
	for len(data) > 0 {
		number, value, n, err := field(data)
		switch number {
		case 1:
			condition.Type = string(value)
		case 2:
			condition.Status = metav1.ConditionStatus(value)
		case 3:
			err = condition.LastTransitionTime.Unmarshal(value)
		case 4:
			condition.Reason = string(value)
		case 5:
			condition.Message = string(value)
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Reset clears the list.
func (l *CRDList) Reset() { *l = CRDList{} }

// Unmarshal adds the fields of an encoded list.
func (l *CRDList) Unmarshal(data []byte) error {
	return unmarshalList(data, &l.ListMeta, func() *Conditioned {
		l.Items = append(l.Items, CRD{})
		return &l.Items[len(l.Items)-1].Conditioned
	})
}

// Reset clears the list.
func (l *APIServiceList) Reset() { *l = APIServiceList{} }

// Unmarshal adds the fields of an encoded list.
func (l *APIServiceList) Unmarshal(data []byte) error {
	return unmarshalList(data, &l.ListMeta, func() *Conditioned {
		l.Items = append(l.Items, APIService{})
		return &l.Items[len(l.Items)-1].Conditioned
	})
}

// unmarshalList decodes a list. appended appends an empty item and returns it.
func unmarshalList(data []byte, meta *metav1.ListMeta, appended func() *Conditioned) error {
	for len(data) > 0 {
		number, value, n, err := field(data)
		switch {
		case err != nil:
		case number == 1:
			err = meta.Unmarshal(value)
		case number == 2:
			err = appended().Unmarshal(value)
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// field returns the first field of an encoded message, and the number of bytes that it takes. number is 0 if the field is no string, bytes
// or message. value shares memory with data.
func field(data []byte) (number protowire.Number, value []byte, n int, err error) {
	number, kind, n := protowire.ConsumeTag(data)
	if n < 0 {
		return 0, nil, 0, protowire.ParseError(n)
	}
	size := protowire.ConsumeFieldValue(number, kind, data[n:])
	if size < 0 {
		return 0, nil, 0, protowire.ParseError(size)
	}
	if kind != protowire.BytesType {
		return 0, nil, n + size, nil
	}
	value, _ = protowire.ConsumeBytes(data[n:])
	return number, value, n + size, nil
}
