// Asks for a new passkey and shows what bailiwick operator passkey reads.
const byId = id => document.getElementById(id);
const text = bytes => btoa(Array.from(new Uint8Array(bytes), b => String.fromCharCode(b)).join(''));
const random = n => crypto.getRandomValues(new Uint8Array(n));

byId('enrol').disabled = false;
byId('enrol').addEventListener('click', async () => {
  byId('problem').textContent = '';
  const name = byId('name').value.trim() || 'passkey', rpId = byId('enrol').dataset.rp;
  try {
    const made = await navigator.credentials.create({publicKey: {
      challenge: random(32), rp: {id: rpId, name: 'Bailiwick'}, user: {id: random(16), name, displayName: name},
      pubKeyCredParams: [{type: 'public-key', alg: -7}, {type: 'public-key', alg: -8}],
      authenticatorSelection: {userVerification: 'required', residentKey: 'discouraged'}, attestation: 'none',
    }});
    const r = made.response;
    byId('enrolment').value = JSON.stringify({
      name, rpId, credentialId: text(made.rawId), publicKey: text(r.getPublicKey()),
      authenticatorData: text(r.getAuthenticatorData()), clientDataJSON: text(r.clientDataJSON),
    });
    byId('done').hidden = false;
    byId('enrolment').focus();
  } catch (e) {
    byId('problem').textContent = 'No passkey was made: ' + e.message;
  }
});
