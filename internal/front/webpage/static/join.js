// Makes a passkey with the code of an invitation, and shows its fingerprint. The code is in
// the fragment of the link, which no server sees; it leaves the address bar at once.
const byId = id => document.getElementById(id);
const text = bytes => btoa(Array.from(new Uint8Array(bytes), b => String.fromCharCode(b)).join(''));
const bytes = s => Uint8Array.from(atob(s), c => c.charCodeAt(0));
let code = decodeURIComponent(location.hash.slice(1));
let asked = null; // what the service says about the code
history.replaceState(null, '', location.pathname);

async function send(body) {
  const answer = await fetch('/enrol', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
  // The page refuses some requests itself, and not in JSON.
  const said = await answer.json().catch(() => ({problem: answer.status === 429 ? 'Too many attempts from this address: wait a minute, then try again' : `The page answered with status ${answer.status}: reload it`}));
  if (!answer.ok) throw new Error(said.problem + (said.hint ? '. ' + said.hint : ''));
  return said;
}

function failed(e) {
  byId('problem').textContent = e.message;
}

async function check() {
  byId('problem').textContent = '';
  try {
    asked = await send({code});
    byId('invited').textContent = `You are invited as ${asked.principal}.`;
    byId('code-field').hidden = true;
    byId('name-field').hidden = false;
    byId('name').focus();
  } catch (e) {
    failed(e);
  }
}

// fingerprint is computed on this device: the id of the key is the SHA-256 of its canonical
// JSON, and people compare the first 80 bits of it.
async function fingerprint(credential, spki, synced) {
  const key = new Uint8Array(spki);
  const passkey = {id: text(credential), origins: [byId('enrol').dataset.origin], rpId: byId('enrol').dataset.rp, ...(synced ? {synced: true} : {}), uv: true};
  const canonical = JSON.stringify({passkey, public: text(key.slice(key.length > 64 ? -65 : -32))});
  const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(canonical)));
  return Array.from(sum.slice(0, 10), b => b.toString(16).padStart(2, '0')).join('').match(/.{4}/g).join(' ');
}

async function enrol() {
  byId('problem').textContent = '';
  byId('enrol').disabled = true;
  const name = byId('name').value.trim() || 'passkey';
  try {
    const made = await navigator.credentials.create({publicKey: {
      challenge: bytes(asked.challenge), rp: {id: byId('enrol').dataset.rp, name: 'Bailiwick'},
      user: {id: crypto.getRandomValues(new Uint8Array(16)), name: asked.principal, displayName: asked.principal},
      pubKeyCredParams: [{type: 'public-key', alg: -7}, {type: 'public-key', alg: -8}],
      authenticatorSelection: {userVerification: 'required', residentKey: 'discouraged'}, attestation: 'none',
    }});
    const r = made.response;
    const data = new Uint8Array(r.getAuthenticatorData());
    const shown = await fingerprint(made.rawId, r.getPublicKey(), (data[32] & 8) !== 0);
    const said = await send({code, enrolment: {
      name, rpId: byId('enrol').dataset.rp, credentialId: text(made.rawId), publicKey: text(r.getPublicKey()),
      authenticatorData: text(data), clientDataJSON: text(r.clientDataJSON),
    }});
    if (said.fingerprint !== shown) throw new Error('The service keeps another passkey than the one of this device: tell an operator, and do not let them admit it.');
    byId('fingerprint').textContent = shown;
    byId('admit').textContent = `bailiwick operators admit ${said.principal} "${shown}"`;
    byId('name-field').hidden = true;
    byId('invited').textContent = '';
    byId('done').hidden = false;
    byId('done').focus();
  } catch (e) {
    failed(e);
    byId('enrol').disabled = false;
  }
}

byId('check').disabled = false;
byId('check').addEventListener('click', () => { code = byId('code').value.trim(); check(); });
byId('enrol').addEventListener('click', enrol);
addEventListener('hashchange', () => location.reload()); // a link that is pasted while the page is open
if (code) check();
