import { rangeWords } from "../charts/ranges";
import { timeZone } from "../format/times";
import { hashOf, type Route } from "./router";
import { chooseTheme, THEMES, useTheme } from "./theme";
import { type View, VIEWS } from "./views";

export function Navigation({ route, view }: { route: Route; view: View | undefined }) {
  const marked = view?.partOf ?? view?.name;
  return (
    <nav aria-label="Main">
      <a className="brand" href="#/fleet">
        <Logo />
        <span>Millstream</span>
      </a>
      {groups().map(([group, views]) => (
        <section key={group}>
          <h2>{group}</h2>
          <ul>
            {views.map(({ name, navigation }) => (
              <li key={name}>
                <a
                  href={hashOf([name], rangeWords(route.query))}
                  aria-current={name === marked ? "page" : undefined}
                  title={navigation?.title}
                >
                  <Icon path={navigation?.icon ?? ""} />
                  <span>{navigation?.title}</span>
                </a>
              </li>
            ))}
          </ul>
        </section>
      ))}
      <footer>
        <span className="quiet zone" title="All times on these pages are in this time zone">
          Times in {timeZone(new Date())}
        </span>
        <a href="docs" className="quiet" title="Interactive documentation of the query API">
          API docs
        </a>
        <ThemeChoice />
      </footer>
    </nav>
  );
}

function groups(): [string, View[]][] {
  const found = new Map<string, View[]>();
  for (const view of VIEWS) {
    const group = view.navigation?.group;
    if (group !== undefined) found.set(group, [...(found.get(group) ?? []), view]);
  }
  return [...found];
}

function ThemeChoice() {
  const theme = useTheme();
  return (
    <label className="theme">
      <span className="visually-hidden">Colours</span>
      <select value={theme} onChange={(event) => chooseTheme(event.target.value as (typeof THEMES)[number])}>
        {THEMES.map((name) => (
          <option key={name} value={name}>
            {name === "system" ? "System theme" : name === "light" ? "Light" : "Dark"}
          </option>
        ))}
      </select>
    </label>
  );
}

function Icon({ path }: { path: string }) {
  return (
    <svg viewBox="0 0 24 24" width="16" height="16" aria-hidden="true">
      <path d={path} fill="currentColor" fillRule="evenodd" />
    </svg>
  );
}

function Logo() {
  return (
    <svg viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
      <rect width="24" height="24" rx="6" fill="var(--brand)" />
      <path
        d="M4 9c3-3 5 3 8 0s5 3 8 0M4 15c3-3 5 3 8 0s5 3 8 0"
        fill="none"
        stroke="#fff"
        strokeWidth="2"
        strokeLinecap="round"
      />
    </svg>
  );
}
