// Signs in with a passkey: the service gives a challenge and verifies the answer.
const button = document.getElementById('passkey');
const problem = document.getElementById('problem');
const text = bytes => btoa(Array.from(new Uint8Array(bytes), b => String.fromCharCode(b)).join(''));
const bytes = s => Uint8Array.from(atob(s), c => c.charCodeAt(0));

async function send(path, body) {
  const answer = await fetch(path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
  // The page refuses some requests itself, and not in JSON.
  const said = await answer.json().catch(() => ({problem: answer.status === 429 ? 'Too many attempts from this address: wait a minute, then try again' : `The page answered with status ${answer.status}: reload it`}));
  if (!answer.ok) throw new Error(said.problem + (said.hint ? '. ' + said.hint : ''));
  return said;
}

button.disabled = false;
button.addEventListener('click', async () => {
  problem.textContent = '';
  try {
    const asked = await send('/login/passkey/begin', {});
    const allowCredentials = asked.credentials.map(id => ({type: 'public-key', id: bytes(id)}));
    const got = await navigator.credentials.get({publicKey: {challenge: bytes(asked.challenge), rpId: location.hostname, allowCredentials, userVerification: 'required'}});
    const r = got.response;
    await send('/login/passkey/finish', {id: asked.id, assertion: {
      authenticatorData: text(r.authenticatorData), clientDataJSON: text(r.clientDataJSON), credentialId: text(got.rawId), signature: text(r.signature),
    }});
    location.assign(button.dataset.next);
  } catch (e) {
    problem.textContent = 'Not signed in: ' + e.message;
  }
});
