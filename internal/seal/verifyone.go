package seal

import "fmt"

// VerifyOne returns the payload of an envelope that carries one signature, by a
// key that find knows. It is for who has many envelopes and several keys: the
// envelope is read once.
func VerifyOne(envelope []byte, t PayloadType, find func(KeyID) (Key, error)) ([]byte, error) {
	env, payload, err := decode(envelope, t)
	if err != nil {
		return nil, err
	}
	if len(env.Signatures) != 1 {
		return nil, fmt.Errorf("%w: %d signatures, want one", ErrUnsigned, len(env.Signatures))
	}
	k, err := find(KeyID(env.Signatures[0].KeyID))
	if err != nil {
		return nil, err
	}
	root := RootOf(k)
	if err := root.Validate(); err != nil {
		return nil, err
	}
	known := map[KeyID]bool{}
	if foreign, err := env.count(payload, root, known); err != nil || foreign > 0 || len(known) != 1 {
		if err == nil {
			err = ErrUnknownKey
		}
		return nil, err
	}
	return payload, nil
}
