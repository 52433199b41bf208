// Asking the server. Every failure becomes an ApiError with one sentence for a person.

const TIMEOUT_MS = 10000;

export class ApiError extends Error {
  constructor(sentence, detail, reachable) {
    super(sentence);
    this.detail = detail;
    this.reachable = reachable;
  }
}

export function createApi(base, t, language) {
  async function ask(path, { method = "GET", query = {}, body } = {}) {
    const url = new URL(path, base);
    // Sentences come in the reader's language.
    url.searchParams.set("lang", language);
    for (const [name, value] of Object.entries(query)) {
      for (const item of Array.isArray(value) ? value : [value]) {
        if (item !== null && item !== undefined && item !== "") url.searchParams.append(name, item);
      }
    }
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), TIMEOUT_MS);
    try {
      const response = await fetch(url, {
        method,
        signal: stop.signal,
        cache: "no-store",
        headers: body === undefined ? {} : { "Content-Type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
      const answer = await response.json().catch(() => null);
      if (response.ok && answer !== null) return answer;
      const detail = answer?.detail ?? `HTTP ${response.status}`;
      throw new ApiError(answer?.error ?? t("error.server"), detail, response.status < 500);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw new ApiError(t("error.unreachable"), String(error?.message ?? error), false);
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    get: (path, query) => ask(path, { query }),
    put: (path, body) => ask(path, { method: "PUT", body }),
    post: (path, body = {}) => ask(path, { method: "POST", body }),
    link: (path, query) => {
      const url = new URL(path, base);
      for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
      return url.href;
    },
  };
}
