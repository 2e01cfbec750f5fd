// Signs exactly the record that this page shows: the challenge is computed from its text.
const byId = id => document.getElementById(id);
const text = bytes => btoa(Array.from(new Uint8Array(bytes), b => String.fromCharCode(b)).join(''));
const url = bytes => text(bytes).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const bytes = s => Uint8Array.from(atob(s.replaceAll('-', '+').replaceAll('_', '/')), c => c.charCodeAt(0));
const type = 'application/vnd.bailiwick.operator.v1+json';

// The DSSE pre-authentication encoding. Records are printable ASCII.
async function challenge(payload) {
  const pae = `DSSEv1 ${type.length} ${type} ${payload.length} ${payload}`;
  return new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(pae)));
}

const button = byId('sign');
if (button) {
  button.disabled = false;
  button.addEventListener('click', async () => {
    const problem = byId('problem');
    problem.textContent = '';
    try {
      const signed = await challenge(byId('payload').textContent);
      if (url(signed) !== button.dataset.challenge) throw new Error('the challenge is not that of the record shown');
      const allowCredentials = Object.entries(button.dataset).filter(([k]) => k.startsWith('credential')).map(([, v]) => ({type: 'public-key', id: bytes(v)}));
      const got = await navigator.credentials.get({publicKey: {challenge: signed, rpId: location.hostname, allowCredentials, userVerification: 'required'}});
      const r = got.response;
      const answer = await fetch(location.pathname, {method: 'POST', headers: {'Content-Type': 'application/json', 'X-Csrf-Token': button.dataset.token}, body: JSON.stringify({
        authenticatorData: text(r.authenticatorData), clientDataJSON: text(r.clientDataJSON), credentialId: text(got.rawId), signature: text(r.signature),
      })});
      // The page refuses some requests itself, and not in JSON.
      const said = await answer.json().catch(() => ({problem: answer.status === 401 ? 'your session has ended: reload this page' : `the page answered with status ${answer.status}: reload it`}));
      if (!answer.ok) throw new Error(said.problem);
      location.reload();
    } catch (e) {
      problem.textContent = 'Not signed: ' + e.message;
    }
  });
}
