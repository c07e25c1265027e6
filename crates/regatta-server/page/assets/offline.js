// Loads the page again when the daemon responds.
const RETRY_MS = 3_000;

async function retry() {
  try {
    const response = await fetch('/', { method: 'HEAD', cache: 'no-store' });
    if (response.ok) {
      location.reload();
      return;
    }
  } catch {
    // The daemon still does not respond.
  }
  setTimeout(retry, RETRY_MS);
}

setTimeout(retry, RETRY_MS);
